"""The whole net, by what is compiled for a CPU and by what any other device computes."""

import numpy as np
import pytest
import torch

from solution.models.layout.layout_gnn import LayoutGnn, LayoutGnnSettings, prepare
from tests.made.elsewhere import compute_as_elsewhere
from tests.made.graphs import make_layout_graph


@pytest.mark.parametrize("is_short", [False, True])
def test_scores_and_gradients_are_the_same(is_short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = LayoutGnn(LayoutGnnSettings(width=16, rounds=(16, 8))).eval()
    inputs = [prepare(make_layout_graph(seed, configs=20), "neighbourhood", 1) for seed in (1, 2)]
    configs = np.random.default_rng(0).integers(0, 5, (12, 2))

    def learn() -> dict[str, torch.Tensor]:
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_short):
            scores = net.score_batch(inputs, configs)
        (scores.float() * torch.linspace(-1, 1, 12)[:, None]).sum().backward()
        found = {name: value.grad for name, value in net.named_parameters()}
        return {"scores": scores.detach()} | {n: g for n, g in found.items() if g is not None}

    compiled = learn()
    compute_as_elsewhere(monkeypatch)
    expected = learn()
    assert compiled.keys() == expected.keys() and len(expected) > 20
    for name, value in expected.items():
        # Short products round differently by what they are given; sums are long in both.
        tolerance = 0.05 * float(value.float().abs().max()) if is_short else 1e-4
        torch.testing.assert_close(compiled[name], value, rtol=0, atol=tolerance, msg=name)
