"""The file that a policy is saved in."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from solution.models.nets.checkpoint import SEAL, seal_tensors
from solution.placement.machine import Machine, make_machine
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.saving import SETTINGS, SHIPPED, load_policy, save_policy
from solution.system.errors import InputError
from tests.placement.made import make_graph
from tests.placement.test_policy import SMALL, make_policy


def test_a_saved_policy_decides_the_same(tmp_path: Path) -> None:
    policy, inputs = make_policy(), find_inputs(make_graph(40, 1))
    save_policy(policy, tmp_path / "mine.safetensors")
    loaded = load_policy(tmp_path / "mine.safetensors")
    assert loaded.settings == policy.settings
    for task in SMALL.tasks:
        assert torch.equal(policy(inputs, 2)[task].log_chances, loaded(inputs, 2)[task].log_chances)


def test_what_is_no_policy_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="bad.safetensors: expected a policy"):
        load_policy(path)
    with pytest.raises(InputError, match="there is no such file"):
        load_policy(tmp_path / "none")
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(InputError, match="its weights are of something else"):
        load_policy(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 5}, "width is 32, expected a multiple of 5 heads"),
        ({"segment": 0}, "segment is 0, expected a number from 1"),
        ({"agreement": 10**9}, "agreement is 1000000000, expected a number from 0"),
        ({"tasks": []}, "expected one or more, each once"),
        ({"tasks": ["fusion", "fusion"]}, "expected one or more, each once"),
    ],
)
def test_a_file_that_asks_for_what_is_no_network_is_refused(
    settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    path, policy = tmp_path / "odd.safetensors", make_policy()
    text = json.dumps({**asdict(policy.settings), **settings})
    tensors = dict(policy.state_dict())
    save_file(tensors, path, {SETTINGS: text, SEAL: seal_tensors(tensors, text)})
    with pytest.raises(InputError, match=f"odd.safetensors: expected a policy .*{message}"):
        load_policy(path)


def test_the_shipped_policy_is_small_and_decides() -> None:
    assert SHIPPED.stat().st_size <= 5e6
    machine: Machine = make_machine(4)
    found = load_policy()(find_inputs(make_graph(60, 1)), len(machine))
    assert set(found) == {"fusion", "placement", "schedule"}
