"""Save a policy as one file: safetensors with JSON settings and a checksum inside; no pickle."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from solution.models.nets.checkpoint import SEAL, seal_tensors
from solution.placement.policy.network import Policy
from solution.placement.policy.settings import PolicySettings
from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file

SHIPPED = Path(__file__).parent / "go.safetensors"
SETTINGS = "settings"
MAX_BYTES = 64 << 20


def save_policy(policy: Policy, path: Path) -> None:
    """Write the policy as one file."""
    tensors = {name: value.contiguous() for name, value in policy.state_dict().items()}
    text = json.dumps(asdict(policy.settings))
    content = save(tensors, {SETTINGS: text, SEAL: seal_tensors(tensors, text)})
    with replace_file(path) as temporary:
        temporary.write_bytes(content)


def load_policy(path: Path = SHIPPED) -> Policy:
    """Read a policy; raise InputError if the file is not a valid one."""
    try:
        open_regular(path, "a policy", MAX_BYTES).close()
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not {SETTINGS, SEAL} <= facts.keys():
            raise ValueError("its weights are of something else")
        if facts[SEAL] != seal_tensors(tensors, facts[SETTINGS]):
            raise ValueError("its checksum is another: the file is damaged")
        policy = Policy(_read_settings(facts[SETTINGS]))
        policy.load_state_dict(tensors)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except (SafetensorError, ValidationError, RuntimeError, ValueError, LookupError) as error:
        text = str(error).splitlines()[0].removesuffix(".")
        raise InputError(f"{path}: expected a policy in safetensors, but: {text}.") from error
    if not all(torch.isfinite(value).all() for value in policy.state_dict().values()):
        raise InputError(f"{path}: expected a policy, but a weight is no finite number.")
    return policy.eval()


def _read_settings(text: str) -> PolicySettings:
    """Return the settings; raise ValueError if they are not valid."""
    try:
        return TypeAdapter(PolicySettings).validate_json(text)
    except InputError as error:
        raise ValueError(str(error)) from error
