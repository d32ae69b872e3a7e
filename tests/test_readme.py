"""What the README and its pages promise is true: commands run, the example works, files are there.

Those in COLD are started as users start them, in a new interpreter; the others are forked from a
process that has their libraries, as in most other tests: see tests/processes.py.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from solution.commands.assembly import assemble
from tests.conftest import REPOSITORY, FastSlow
from tests.made import modules

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMPETE, MODEL = (
    (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    for name in ("compete.md", "add-a-model.md")
)
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
COMMANDS = [
    words
    for text in (README, COMPETE, MODEL)
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if (words := shlex.split(line, comments=True))
]
FASTSLOW = [words[1:] for words in COMMANDS if words[0] == ".venv/bin/fastslow"]
# Of few libraries, of many, with children, workers and trials.
COLD = ("check", "rank", "choose", "train", "tune")
LOOKING = (
    "check", "inspect", "module", "prepare", "features", "experiments",
    "rank", "choose",
)  # fmt: skip
ON_THE_SAMPLE = [words for words in FASTSLOW if words[0] in LOOKING]
EXAMPLE = ("train", "run", "ensemble", "compare", "verify", "explain", "tune")
OF_THE_EXAMPLE = [words for words in FASTSLOW if words[0] in EXAMPLE]
# Those that talk to Kaggle run in kaggle/test_make_submit.py and kaggle/test_kernels.py, against a
# stand-in.
KERNELS = {"kernels-push", "kernels-status", "kernels-pull", "kernels-share"}
WITH_KAGGLE = {"data", "submit", "scores", "leaderboard", *KERNELS}


def test_every_command_is_known_to_these_tests() -> None:
    programs = {words[0] for words in COMMANDS}
    assert programs == {"make", ".venv/bin/fastslow"}
    known = {words[0] for words in [*ON_THE_SAMPLE, *OF_THE_EXAMPLE]} | {"doctor"}
    assert set(EXAMPLE) < known
    assert {words[0] for words in FASTSLOW} == known


def test_make_targets_and_folders_exist() -> None:
    for _, target, *options in (words for words in COMMANDS if words[0] == "make"):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        for option in options if target not in WITH_KAGGLE else []:
            assert (REPOSITORY / option.removeprefix("DATA=")).is_dir()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Commands, targets of make and files: the README's own are tried below."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    spoken = [*re.findall(r"`([^`\n]+)`", text), *(line for b in blocks for line in b.splitlines())]
    commands = get_command(assemble()).commands  # type: ignore[attr-defined]
    for words in (line.removeprefix(".venv/bin/").split() for line in spoken):
        if words[:1] == ["make"] and len(words) > 1:
            assert re.search(rf"^{words[1]}:", MAKEFILE, re.MULTILINE), words
        if words[:1] == ["fastslow"] and len(words) > 1 and words[1][0] != "-":
            assert words[1] in commands, words
    assert (
        max(map(len, (line for block in blocks for line in block.splitlines())), default=0) <= 100
    )
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target.split("#")[0]).exists(), target


def test_ci_calls_the_two_commands_of_the_readme() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in script if line.startswith("make")] == ["make run", "make test"]


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 150


@pytest.fixture
def first_cold(cold_fastslow: FastSlow, fastslow: FastSlow) -> FastSlow:
    """Run a command; the first time it is started cold, if it is one of COLD."""
    left = set(COLD)

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        is_cold = arguments[0] in left
        left.discard(str(arguments[0]))
        return cold_fastslow(*arguments) if is_cold else fastslow(*arguments)

    return call


def test_commands_on_the_sample_run_one_after_the_other(
    first_cold: FastSlow, tmp_path: Path
) -> None:
    (tmp_path / "solution").symlink_to(REPOSITORY / "solution")
    modules.write(modules.make_layout_record(), tmp_path / "my_program.pb")
    for words in dict.fromkeys(map(tuple, ON_THE_SAMPLE)):
        result = first_cold(*words)
        assert result.returncode == 0, result.stderr


def test_your_own_model_in_one_file(first_cold: FastSlow, tmp_path: Path) -> None:
    """The example and its recipe are saved, run and merged exactly as the page says."""
    (example,) = re.findall(r"```python\n(.*?)```", MODEL, re.DOTALL)
    (recipe,) = re.findall(r"```toml\n(.*?)```", MODEL, re.DOTALL)
    (tmp_path / "my_ridge.py").write_text(example, encoding="utf-8")
    edited = example.replace("my_ridge", "my_ridge_2").replace("10.0", "1.0")
    (tmp_path / "my_ridge_2.py").write_text(edited, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(recipe, encoding="utf-8")
    order = list(EXAMPLE)
    for words in sorted(OF_THE_EXAMPLE, key=lambda words: order.index(words[0])):
        result = first_cold(*("1" if word == "25" else word for word in words))  # trials
        assert result.returncode == 0, result.stderr
        merged = words[0] in ("run", "ensemble") and "--search" not in words
        assert "my_ridge" in result.stdout or not merged
    assert "my_ridge" in (tmp_path / "found.toml").read_text(encoding="utf-8")
