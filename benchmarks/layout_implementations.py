"""Measure what each implementation of the layout net is worth, in processor time.

    python -m benchmarks.layout_implementations [--nodes 10449]

Training steps and predictions with and without what numba compiles, by turns on one core; the
prediction without torch; and what numba would add to the first prediction of a process. Programs
are synthetic (benchmarks/devices.py).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import torch
import typer
from lightning_fabric import Fabric

from benchmarks import devices
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.features.preparation import Preparation
from solution.models.layout import colour_refinement, layout_gnn
from solution.models.layout.layout_forward import LayoutForward
from solution.models.layout.layout_gnn import CompiledRound, DeviceRound
from solution.models.nets.forward import standardise
from solution.models.nets.training_loop import Steps, make_optimizer, sample

NAME = "layout_gnn_001"
# Which colours and which rounds are compiled.
WAYS = {
    "compiled": (layout_gnn.plan_colours, lambda own, _: CompiledRound(own)),
    "rounds by torch": (layout_gnn.plan_colours, DeviceRound),
    "colours by numpy": (colour_refinement.plan_colours, lambda own, _: CompiledRound(own)),
    "neither": (colour_refinement.plan_colours, DeviceRound),
}
FIRST = """
import time
import numpy as np
import torch
from solution import load_bundle, read_graph
from solution.data.folders import SAMPLE
graph = read_graph(SAMPLE / "npz/layout/nlp/random/valid/gpt_L-2_H-80_A-5_b2_s40.npz")
((_, model, graph),) = load_bundle().prepare(graph)
arrays = model.ranker.describe(graph)
began = time.process_time()
from solution.models.layout import compiled
rows = np.arange(len(arrays.structure.codebook.codes))[:, None]
(own,) = compiled.plan_colours([arrays.structure], rows, 1).rounds
before = own.aggregation.num_columns // 3
compiled.CompiledRound(own).receive(
    torch.zeros(3 * before, 4), torch.zeros(before, 8), torch.zeros(len(own.marks.colours), 4),
    torch.nn.LayerNorm(4))
print(time.process_time() - began)
"""


def main(
    nodes: Annotated[int, typer.Option(help="Of a program.", min=60)] = 10_449,
    times: Annotated[int, typer.Option(help="Repetitions.", min=2)] = 9,
) -> None:
    """Print milliseconds, and ratios to the first row."""
    torch.set_num_threads(1)
    ranker, examples = devices.prepare(NAME, "cpu", 1, nodes)
    torch.manual_seed(0)
    ranker.net_ = net = ranker.make_net()
    settings, fabric = ranker.settings.training, Fabric(accelerator="cpu", devices=1)
    wrapped, optimizer = fabric.setup(net, make_optimizer(net, settings))
    steps, generator = Steps(fabric, wrapped, optimizer, settings, net), np.random.default_rng(0)

    def learn() -> None:
        for example in examples:
            rows = sample(len(example.runtimes), settings.configs_per_graph, generator)
            steps.take(steps.plan([example], rows[None]))

    acts = {name: using(name, learn) for name in WAYS}
    show(f"{len(examples)} training steps", time_by_turns(acts, times))
    acts = {name: using(name, lambda: net.score_graph(examples[0].inputs)) for name in WAYS}
    light = ranker.in_numpy()
    arrays = make_arrays(light, nodes)
    acts["without torch"] = lambda: predict(light, arrays)
    show(f"A prediction of {devices.CONFIGS} configurations", time_by_turns(acts, times))
    with tempfile.TemporaryDirectory() as empty:
        kept = [measure_first(os.environ) for _ in range(times)]
        anew = measure_first(os.environ | {"NUMBA_CACHE_DIR": empty})
    print(f"What is compiled adds {np.median(kept):.2f} s to a process; {anew:.1f} s anew.")


def using(name: str, act: Callable[[], Any]) -> Callable[[], Any]:
    """Return `act` with an implementation."""
    plan, make = WAYS[name]

    def run() -> Any:
        with (
            mock.patch.object(layout_gnn, "plan_colours", plan),
            mock.patch.object(layout_gnn, "make_round", make),
        ):
            return act()

    return run


def make_arrays(light: LayoutForward, nodes: int) -> Any:
    """Describe the first program again, as the net without torch reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = devices.write_programs(Path(folder), nodes)[0]
        return light.describe(Preparation(1)(read_graph(path, collection("layout:xla:random"))))


def predict(light: LayoutForward, arrays: Any) -> np.ndarray:
    """Return scores; features are not counted, as torch's inputs have them."""
    return light.read_out(standardise(light.sum(arrays, light.embed(arrays)), arrays.listed))


def time_by_turns(acts: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Return the median milliseconds of each, after a first call that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(times + 1):
        for name, act in acts.items():
            began = time.process_time()
            act()
            taken[name].append(1000 * (time.process_time() - began))
    return {name: float(np.median(values[1:])) for name, values in taken.items()}


def measure_first(environment: Any) -> float:
    """Return the seconds until a new process, which has torch, has run what is compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def show(title: str, found: dict[str, float]) -> None:
    """Print a line for each implementation."""
    print(title)
    first = next(iter(found.values()))
    for name, taken in found.items():
        print(f"  {name:20} {taken:8.1f} ms  {taken / first:5.2f}")


if __name__ == "__main__":
    typer.run(main)
