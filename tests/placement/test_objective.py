"""What proximal policy optimisation gains by, beside the formula written out."""

import math

import pytest
import torch

from solution.placement.policy.ppo import find_gain

CHANGE = [[0.3, -0.1, 0.5], [-0.4, 0.2, -0.7]]
ADVANTAGES = [1.5, -0.5]


def slow_gain(ratio: str, clip: float) -> float:
    gains = []
    for parts, advantage in zip(CHANGE, ADVANTAGES, strict=True):
        ratios = {
            "node": [math.exp(part) for part in parts],
            "graph": [math.prod(math.exp(part) for part in parts)],
            "mean": [math.prod(math.exp(part) for part in parts) ** (1 / len(parts))],
        }[ratio]
        for own in ratios:
            clipped = min(max(own, 1 - clip), 1 + clip) if clip else own
            gains.append(min(own * advantage, clipped * advantage))
    return sum(gains) / len(gains)


@pytest.mark.parametrize("clip", [0, 0.1, 0.4])
@pytest.mark.parametrize("ratio", ["mean", "graph", "node"])
def test_it_is_the_formula(ratio: str, clip: float) -> None:
    found = find_gain(torch.tensor(CHANGE), torch.tensor(ADVANTAGES), ratio, clip)
    assert found.item() == pytest.approx(slow_gain(ratio, clip))


def test_what_is_farther_than_the_clip_is_not_pushed_on() -> None:
    """A better decision gains up to 1 + clip, and no gradient is left beyond."""
    gradients = []
    for change in (0.05, 0.15, 0.3):
        own = torch.full((1, 4), change, requires_grad=True)
        find_gain(own, torch.ones(1), "mean", 0.2).backward()
        assert own.grad is not None
        gradients.append(own.grad.sum().item())
    assert gradients[0] < gradients[1]
    assert gradients[2] == 0
