"""What deploy/ and docs/machines.md say is true: of Ray, of pip and of `fastslow`."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.main import get_command

from solution.commands.assembly import assemble
from solution.data.folders import SAMPLE
from solution.runs.fingerprint import fingerprint_code
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
PAGE = (REPOSITORY / "docs" / "machines.md").read_text(encoding="utf-8")
CLUSTER = (DEPLOY / "cluster.yaml").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IGNORED = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()


def read_steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, and what each is given."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, " ".join(given.split())) for name, given in (x.split(" ", 1) for x in joined)]


STEPS = read_steps()
INSTALLS = [given for name, given in STEPS if name == "RUN" and re.search("pip|compileall", given)]


def given_to(instruction: str) -> list[str]:
    return [given for name, given in STEPS if name == instruction]


def list_commands(program: str) -> Iterator[list[str]]:
    """What the page and the head of cluster.yaml tell people to type of a program."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    head = re.findall(r"^#   (.+)$", CLUSTER, re.MULTILINE)
    typed = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*typed, *head, *re.findall(r"`([^`\n]+)`", PAGE)]:
        words = shlex.split(line, comments=True)
        if words and Path(words[0]).name == program:
            yield words[1:]
        for word in words:  # typed on another machine
            if word.startswith(f"{program} "):
                yield shlex.split(word)[1:]


def assert_parses(command: Any, words: list[str]) -> None:
    """Every word is a subcommand, an option or an argument, and of the type that is asked for."""
    while hasattr(command, "commands"):
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    there = [str(SAMPLE) if word == "data" or word[:8] == "/shared/" else word for word in words]
    command.make_context(command.name, there)  # parses, and runs nothing


def test_every_command_of_the_page_is_one_of_the_program() -> None:
    typed = [words for words in list_commands("fastslow") if len(words) > 1]
    assert {words[0] for words in typed} == {"run", "tune", "collect", "choose", "prepare"}
    for words in typed:
        assert_parses(get_command(assemble()), words)
    options = set(re.findall(r"--[a-z-]+", " ".join(" ".join(words) for words in typed)))
    assert {"--executor", "--address", "--gpu-share", "--store"} <= options


def test_every_command_of_ray_is_one_of_ray() -> None:
    from ray.scripts.scripts import cli

    typed = [words for words in list_commands("ray") if words]
    started = yaml.safe_load(CLUSTER)
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        typed += [shlex.split(line)[1:] for line in started[key]]
    assert {words[0] for words in typed} >= {"start", "stop", "up", "exec", "attach", "down"}
    for words in typed:
        assert_parses(cli, words)


def test_ray_accepts_the_cluster() -> None:
    from ray.autoscaler._private.commands import warn_about_bad_start_command
    from ray.autoscaler._private.util import prepare_config, validate_config
    from ray.autoscaler.v2.instance_manager.config import FileConfigReader

    prepared = prepare_config(yaml.safe_load(CLUSTER))
    validate_config(prepared)
    warn_about_bad_start_command(prepared["head_start_ray_commands"])
    kinds = prepared["available_node_types"]
    assert prepared["max_workers"] == kinds["worker"]["max_workers"] == 10
    assert kinds["worker"]["min_workers"] == kinds["head"]["max_workers"] == 0
    assert not prepared["head_setup_commands"] + prepared["worker_setup_commands"]  # all in image
    reader = FileConfigReader(str(DEPLOY / "cluster.yaml"), skip_content_hash=True)  # the head's
    assert reader.get_cached_autoscaling_config().get_max_num_worker_nodes() == 10


def test_the_cluster_is_private_and_tells_nobody() -> None:
    found = yaml.safe_load(CLUSTER)
    options = set(found["docker"]["run_options"])
    assert {"--env RAY_USAGE_STATS_ENABLED=0", "--env RAY_AUTH_MODE=token"} <= options
    assert "--disable-usage-stats" in found["head_start_ray_commands"][-1]
    home = dict(pair.split("=") for pair in given_to("ENV")[-1].split())["HOME"]
    assert list(found["file_mounts"]) == [f"{home}/.ray/auth_token"]


def test_machines_are_started_as_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ray's own code, against a stand-in for Amazon."""
    moto = pytest.importorskip("moto")
    boto3 = pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray makes a key in ~/.ssh
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config

    with moto.mock_aws():
        config = prepare_config(yaml.safe_load(CLUSTER))
        region = config["provider"]["region"]
        for kind in ("head", "worker"):
            boto3.client("iam").create_instance_profile(InstanceProfileName=f"fast-or-slow-{kind}")
        described = AWSNodeProvider.fillout_available_node_types_resources(config)
        config = AWSNodeProvider.bootstrap_config(described)
        provider = AWSNodeProvider(config["provider"], config["cluster_name"])
        for kind, node in config["available_node_types"].items():
            provider.create_node(node["node_config"], {"ray-node-type": kind}, 1)
        started = list(boto3.resource("ec2", region_name=region).instances.all())
    assert sorted(one.instance_type for one in started) == ["m6i.4xlarge", "m6i.xlarge"]
    assert [one.instance_lifecycle for one in started].count("spot") == 1
    resources = {k: n["resources"] for k, n in config["available_node_types"].items()}
    assert resources["head"]["CPU"] == 0 and resources["worker"]["CPU"] == 16
    assert resources["worker"]["memory"] > 40 << 30  # without it, no fit would be given to it


def test_the_image_is_made_of_what_is_there() -> None:
    copied = [source for given in given_to("COPY") for source in given.split()[:-1]]
    assert [source for source in copied if not (REPOSITORY / source).exists()] == []
    assert [line[1:] for line in IGNORED if line[:1] == "!"] == copied  # all else is not sent


def test_the_image_has_a_python_and_extras_that_the_project_has() -> None:
    (base,) = given_to("FROM")
    version = base.removeprefix("python:").removesuffix("-slim")
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)
    extras = re.findall(r'"\.\[(.+?)\]"', " ".join(INSTALLS))
    assert extras == ["cluster,collect"]
    assert set(extras[0].split(",")) <= PROJECT["optional-dependencies"].keys()
    fixed = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    for wanted in (*PROJECT["optional-dependencies"]["cluster"], "boto3"):
        assert re.search(rf"^{Requirement(wanted).name}==", fixed, re.MULTILINE), wanted


def test_nothing_in_the_image_runs_as_root() -> None:
    names = [name for name, _ in STEPS]
    assert "ENTRYPOINT" not in names  # Ray starts a shell
    (user,) = given_to("USER")
    assert user != "root" and f" {user} " in f"{' '.join(given_to('RUN'))} "
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")


def lay_out(folder: Path) -> Iterator[str]:
    """Copy what the Dockerfile copies; yield its installing steps when their files are there."""
    for name, given in STEPS:
        if name == "COPY":
            *sources, target = given.split()
            for path in (REPOSITORY / source for source in sources):
                if path.is_dir():
                    leave = shutil.ignore_patterns("__pycache__", "sent", ".*.lock")
                    shutil.copytree(path, folder / target, ignore=leave)
                else:
                    shutil.copy(path, folder / target)
        elif name == "RUN" and given in INSTALLS:
            yield given


@pytest.mark.slow
def test_the_steps_of_the_image_install_the_program(tmp_path: Path) -> None:
    """In a fresh environment, as they stand in the Dockerfile; torch is PyPI's."""
    environment, source = tmp_path / "environment", tmp_path / "source"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    source.mkdir()
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    told = {**os.environ, "PATH": path, "TORCH_INDEX": "", "COMMIT": "a-commit"}
    for step in lay_out(source):
        subprocess.run(["/bin/sh", "-ec", step], cwd=source, env=told, check=True)
    code = (
        "import boto3, lightgbm, ray, s3fs, torch, solution.commands.training\n"
        "from solution.runs.fingerprint import fingerprint_code\n"
        "from solution.system.commit import read_commit\n"
        "print(fingerprint_code(), read_commit())"
    )
    told.pop("PYTHONPATH", None)
    seen = subprocess.check_output(["python", "-c", code], cwd=tmp_path, env=told, text=True)
    assert seen.split() == [fingerprint_code(), "a-commit"]
    for words in (["fastslow", "train", "--help"], ["ray", "--version"], ["pip", "check"]):
        subprocess.run(words, cwd=tmp_path, env=told, check=True)
