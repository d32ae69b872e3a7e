"""What can be tested of training on a GPU where there is none: its device, its short numbers."""

import dataclasses
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from scipy.stats import spearmanr
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timed_fits import unwrap, with_epochs
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment, list_experiments
from solution.features.nodes import fit_scaler
from solution.models.base import CostRanker
from solution.models.layout.layout_gnn import DeviceRound, derive_computation
from solution.models.nets import net_ranker
from solution.models.nets import training_loop as training
from solution.models.nets.devices import send
from solution.models.nets.losses import LOSSES
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.node_subsets import NodeSettings
from tests.made.elsewhere import compute_as_elsewhere
from tests.made.graphs import make_layout_graph, make_tile_graph

CONFIGS = 8
# What a step does depends on values: a library's search for self-loops, a table of embeddings, the
# soft mask's search for edges that stand there twice.
NEEDS_VALUES = ("_gcn_", "_segments_", "_violation_", "_tpugraphs_attention_")


class Copies(TorchDispatchMode):
    """While it is entered: what is copied to the device by other means than `send`, which is what
    a GPU is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and found.is_meta and not args[0].is_meta:
            ours = [one for one in traceback.extract_stack() if "/solution/" in one.filename]
            if ours[-1].name != send.__name__:
                self.seen.append(f"{ours[-1].name}: {ours[-1].line}")
        return found


def build(name: str) -> Any:
    ranker = unwrap(find_experiment(name).ranker.build(0))
    if isinstance(ranker, CostRanker):
        ranker.backend = "tpu"  # the rules with the most costs; fitting chooses them otherwise
    return ranker


def describe_net(settings: Any) -> str:
    """Return the settings without what decides only which graphs and steps the net is shown."""
    loss = TrainingSettings(loss=settings.training.loss, regression=settings.training.regression)
    nodes = {"nodes": NodeSettings()} if hasattr(settings, "nodes") else {}
    return repr(dataclasses.replace(settings, training=loss, **nodes))


# One experiment for each net.
NETS = list({describe_net(net.settings): name for name in reversed(list_experiments())
             if isinstance(net := build(name), NetRanker)}.values())  # fmt: skip


def make_graph(name: str, seed: int) -> Graph:
    is_tile = find_experiment(name).collections[0].startswith("tile")
    return (make_tile_graph if is_tile else make_layout_graph)(seed, configs=2 * CONFIGS)


def build_scaled(name: str) -> tuple[Any, Any]:
    """A ranker that is not trained, and what it makes of a graph."""
    ranker = build(name)
    example = ranker._example(make_graph(name, 0), None)
    ranker.scalers_ = {
        table: fit_scaler([getattr(example.inputs, table).numpy()])
        for table in ranker.scaled_tables
    }
    return ranker, example


@pytest.mark.parametrize(
    "name", [name for name in NETS if not any(part in name for part in NEEDS_VALUES)]
)
def test_scores_and_gradients_are_where_the_net_is(name: str) -> None:
    """The device "meta" computes shapes only; like a GPU it refuses most of what is on the CPU."""
    ranker, example = build_scaled(name)
    net = ranker.make_net().to("meta").train()
    configs = np.arange(CONFIGS)[:, None]
    with pytest.raises(RuntimeError, match="meta"):
        net.score_batch([ranker._scaled(example).inputs], configs)
    ranker.device = torch.device("meta")
    batch = [ranker._scaled(example).inputs]
    with Copies() as copies:
        scores = net.score_batch(batch, configs)
    assert not copies.seen
    labels = torch.rand(CONFIGS, 1).to(scores.device)
    LOSSES[ranker.settings.training.loss](scores, labels).backward()
    gradients = [value.grad for value in net.parameters()]
    assert {value.device.type for value in gradients if value is not None} == {"meta"}


def test_a_plan_is_on_the_device() -> None:
    """Nothing else says so: sums and selections take their indices from anywhere."""
    inputs = build("layout_gnn_001").prepare(make_graph("layout_gnn_001", 0))
    configs = np.arange(CONFIGS)[:, None]
    plan = derive_computation([inputs.structure], configs, 2, torch.device("meta"))
    tensors = [plan.nodes, plan.configured, plan.pairs]
    matrices = [plan.pooling.matrix]
    for one in plan.rounds:
        assert isinstance(one, DeviceRound)
        tensors += [one.marked, one.known]
        matrices += [one.aggregation, one.parents]
    for matrix in matrices:
        tensors += [*matrix._forward, *matrix._transposed]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.parametrize("name", NETS)
def test_bfloat16_learns_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The precision that training takes on a GPU, and its operations, on the CPU."""
    monkeypatch.setattr(net_ranker, "pick_device", lambda: torch.device("cpu"))
    compute_as_elsewhere(monkeypatch)
    graphs = [make_graph(name, seed) for seed in range(3)]
    settings = with_epochs(build(name).settings, 2)
    scores = []
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)  # type: ignore[arg-type]
        monkeypatch.setattr(training, "make_fabric", lambda fabric=fabric: fabric)
        scores.append(settings.build(0).fit(graphs, []).predict(graphs[0]))
    exact, short = scores
    assert not np.array_equal(short, exact)
    assert spearmanr(short, exact).statistic > 0.8
