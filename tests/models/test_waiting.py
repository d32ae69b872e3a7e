"""How often a step waits for the device: a GPU would then stand idle until the CPU asks again."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from solution.features.nodes import fit_scaler
from solution.models.nets.devices import make_fabric
from solution.models.nets.stepping import Steps
from solution.models.nets.training_loop import make_optimizer
from tests.made.elsewhere import compute_as_elsewhere
from tests.models.test_device import NETS, build, make_graph

# Operations whose result, or its size, the CPU must have before it goes on.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim",
           "unique_consecutive", "equal", "bincount")  # fmt: skip
BAGS = {"repeat_interleave": 1}  # tiles: how many nodes each graph has
# What their libraries and masks look for depends on values, see tests/models/test_device.py.
SEARCHES = {"index by bool": 3, "unique_dim": 2}
SEARCHING = ("_gcn_", "_violation_", "_attention_")


class Waits(TorchDispatchMode):
    """Counts them while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING or str(func) == "aten.repeat_interleave.Tensor":
            self.seen[name] += 1
        if name in ("index", "index_put", "index_put_"):
            self.seen["index by bool"] += any(
                one is not None and one.dtype == torch.bool for one in args[1]
            )
        return func(*args, **(kwargs or {}))


def test_what_waits_is_counted() -> None:
    numbers = torch.arange(4)
    with Waits() as waits:
        float(numbers.sum())
        numbers[numbers > 1]
        numbers[numbers[:2]]
    assert +waits.seen == {"_local_scalar_dense": 1, "index by bool": 1}


@pytest.mark.parametrize("name", NETS)
def test_a_step_waits_for_nothing_that_need_not_be(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_as_elsewhere(monkeypatch)
    ranker = build(name)
    examples = [ranker._example(make_graph(name, seed), None) for seed in range(2)]
    ranker.scalers_ = {
        table: fit_scaler([getattr(example.inputs, table).numpy() for example in examples])
        for table in ranker.scaled_tables
    }
    net, settings, fabric = ranker.make_net().train(), ranker.settings.training, make_fabric()
    step = [ranker._scaled(example) for example in examples[: settings.graphs_per_step]]
    wrapped, optimizer = fabric.setup(net, make_optimizer(net, settings))
    steps = Steps(fabric, wrapped, optimizer, settings, net)
    rows = np.tile(np.arange(settings.configs_per_graph) % 2, (len(step), 1))
    steps.take(steps.plan(step, rows))  # the first one makes what is kept
    with Waits() as waits:
        steps.take(steps.plan(step, rows))
    allowed = BAGS | (SEARCHES if any(part in name for part in SEARCHING) else {})
    assert all(waits.seen[kind] <= allowed.get(kind, 0) for kind in waits.seen), waits.seen
