"""A policy of placement as a file, and what is read of it."""

from pathlib import Path

import torch

from solution.placement.policy.network import Policy
from solution.placement.policy.saving import load_policy, save_policy
from solution.placement.policy.settings import PolicySettings


def make_policy(folder: Path) -> Path:
    torch.manual_seed(0)
    path = folder / "policies" / "mine.safetensors"
    save_policy(Policy(PolicySettings(width=8, heads=2, inner=8, rounds=1)), path)
    return path


def read_policy(path: Path) -> bytes:
    policy = load_policy(path)
    weights = sorted(policy.state_dict().items())
    return repr(policy.settings).encode() + b"".join(w.numpy().tobytes() for _, w in weights)
