"""Measure training and prediction of our nets on this machine's devices.

    make bench-gpu        the GPU and one core of the CPU, ten minutes; without a GPU that core

Programs are synthetic, of the competition's size (benchmarks/corpus.py). Every row is a
separate process: the same steps, drawn alike, on a device, in a precision, and with the
experiment's batch or one four times as large. *Planned*: CPU time to prepare a step, beside the
whole step; with a GPU the next two steps are prepared meanwhile. *Waits*: number of GPU
synchronisations per step. *Agrees*: Kendall's tau between the trained net's scores of a program and
those of that net's first row.
"""

import dataclasses
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import FACTS
from benchmarks.memory import memory, run_apart
from benchmarks.programs import (
    draw_candidates,
    draw_configs,
    make_program,
    write_layout_file,
    write_tile_file,
)
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.metrics import kendall_tau
from solution.experiments.base import find_experiment
from solution.features.nodes import fit_scaler
from solution.features.preparation import Preparation
from solution.models.nets.checkpoint import FitState
from solution.models.nets.devices import pick_precision
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_loop import Steps, list_visits, make_optimizer, sample
from solution.system.progress import track
from solution.system.terminal import make_table

NETS = ("layout_gnn_001", "layout_cost_net_001", "tile_gnn_001")
LARGER = 4  # factor of the larger batch
CONFIGS = 1_000  # per program, as in the test split
LAYOUT_PROGRAMS, KERNELS = 2, 64
FEWEST_STEPS = 10
EPOCHS = 5  # the median is reported: an epoch of few kernels takes only some 50 ms


def main(
    nodes: Annotated[int, typer.Option(help="Of a layout program.", min=60)] = 10_449,
    net: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    one: Annotated[str, typer.Option(help="Only this row, as JSON: its settings.")] = "",
) -> None:
    """Print one row, or the table of all."""
    if one:
        print(json.dumps(measure(nodes=nodes, **json.loads(one))))
        return
    console = Console()
    console.print(say_devices())
    for name in net or NETS:
        with track(list_rows(name), f"Measuring {name}") as rows:
            found = [(row, measure_apart(row, nodes)) for row in rows]
        console.print(tabulate(found))  # before the next row, which may be interrupted


def list_rows(name: str) -> list[dict[str, Any]]:
    """Return the arguments of `measure` for a net: the CPU first, then all variants on the GPU."""
    ways: list[dict[str, Any]] = [{"device": "cpu", "precision": "32-true", "larger": 1}]
    if torch.cuda.is_available():
        precisions = dict.fromkeys(["32-true", pick_precision()])
        ways += [
            {"device": "cuda", "precision": precision, "larger": larger}
            for precision in precisions
            for larger in (1, LARGER)
        ]
    return [{"name": name} | way for way in ways]


def measure_apart(row: dict[str, Any], nodes: int) -> dict[str, Any]:
    """Run `measure` in a process that sees only the row's device."""
    words = ("--nodes", str(nodes), "--one", json.dumps(row))
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if row["device"] == "cpu" else {}
    return run_apart("benchmarks.devices", *words, **hidden)


def measure(name: str, device: str, precision: Any, larger: int, nodes: int) -> dict[str, Any]:
    """Train for some steps and predict; return seconds, megabytes, counts and scores."""
    torch.set_num_threads(1)
    ranker, examples = prepare(name, device, larger, nodes)
    settings = ranker.settings.training
    torch.manual_seed(0)
    net = ranker.make_net().to(device)
    fabric = Fabric(accelerator=device, devices=1, precision=precision)
    wrapped, optimizer = fabric.setup(net, make_optimizer(net, settings))
    steps = Steps(fabric, wrapped, optimizer, settings, net)
    state = FitState(net, optimizer, 0, "")
    steps.run_epoch(examples, state, lambda _: None)  # the first epoch compiles and allocates
    epochs = [
        clock(lambda: steps.run_epoch(examples, state, lambda _: None)) for _ in range(EPOCHS)
    ]
    taken = float(np.median(epochs))
    waits, planned = find_waits(steps, examples), time_planning(steps, examples)
    net.score_graph(examples[0].inputs)
    scoring = clock(lambda: net.score_graph(examples[0].inputs))
    scores = net.score_graph(examples[0].inputs)
    visits = list_visits([len(example.runtimes) for example in examples], settings)
    count = -(-len(visits) // settings.graphs_per_step)
    learned = count * settings.graphs_per_step * settings.configs_per_graph
    return {
        "step": taken / count,
        "planned": planned,
        "learned": learned / taken,
        "scored": len(scores) / scoring,
        "waits": waits,
        "memory": find_memory(device),
        "scores": scores.tolist(),
    }


def prepare(
    name: str, device: str, larger: int, nodes: int
) -> tuple[NetRanker[Any, Any], list[Any]]:
    """Return a net's ranker with its batch size times `larger`, and its training examples."""
    settings: Any = find_experiment(name).ranker
    training = settings.training
    is_tile = name.startswith("tile")
    batch = "graphs_per_step" if is_tile else "configs_per_graph"
    training = dataclasses.replace(
        training,
        **{batch: larger * getattr(training, batch)},
        visits=1 if is_tile else FEWEST_STEPS // LAYOUT_PROGRAMS,
        min_steps=1,
        patience=None,
    )
    ranker = dataclasses.replace(settings, training=training).build(0)
    ranker.device = torch.device(device)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_kernels(Path(folder)) if is_tile else write_programs(Path(folder), nodes)
        source = collection("tile:xla" if is_tile else "layout:xla:random")
        prepare_graph = Preparation(settings.needed_hops)
        graphs = [prepare_graph(read_graph(path, source)) for path in paths]
        made = [ranker._example(graph, training.max_configs) for graph in graphs]
    ranker.scalers_ = {
        table: fit_scaler([getattr(example.inputs, table).numpy() for example in made])
        for table in ranker.scaled_tables
    }
    return ranker, [ranker._scaled(example) for example in made]


def write_programs(folder: Path, nodes: int) -> list[Path]:
    """Write layout programs whose configurations set each layout with probability 0.3."""
    facts, paths = FACTS["layout:xla:random"], []
    configurable = min(facts.configurable.median, nodes // 3)
    for seed in range(LAYOUT_PROGRAMS):
        program = make_program(seed, nodes, round(facts.edges * nodes), configurable)
        candidates = draw_candidates(seed, program)
        paths.append(folder / f"{seed}.npz")
        chosen = draw_configs(seed, candidates, CONFIGS)
        write_layout_file(paths[-1], program, candidates, chosen)
    return paths


def write_kernels(folder: Path) -> list[Path]:
    """Write kernels of median size."""
    paths = [folder / f"{seed}.npz" for seed in range(KERNELS)]
    for seed, path in enumerate(paths):
        write_tile_file(path, seed, FACTS["tile:xla"].nodes.median, CONFIGS, labelled=True)
    return paths


def find_memory(device: str) -> float:
    """Return the peak megabytes of the GPU or of the process."""
    is_gpu = device == "cuda"
    return torch.cuda.max_memory_allocated() / 2**20 if is_gpu else float(memory("VmHWM"))


def clock(act: Callable[[], Any]) -> float:
    """Return seconds until the device has finished."""
    wait()
    started = time.perf_counter()
    act()
    wait()
    return time.perf_counter() - started


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_planning(steps: Steps, examples: list[Any]) -> float:
    """Return the mean seconds of preparing a step on the CPU; 0 if a net needs no preparation."""
    size = steps.settings.graphs_per_step
    plans = [draw(steps, examples[n : n + size]) for n in range(0, len(examples), size)]
    return clock(lambda: [planned() for plan in plans for *_, planned in plan]) / len(plans)


def find_waits(steps: Steps, examples: list[Any]) -> int | None:
    """Return the number of GPU synchronisations per step; None without a GPU."""
    if steps.fabric.device.type != "cuda":
        return None
    plan = draw(steps, examples[: steps.settings.graphs_per_step])
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps.take(plan)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def draw(steps: Steps, graphs: list[Any]) -> Any:
    """Draw a step with random configurations."""
    count, generator = steps.settings.configs_per_graph, np.random.default_rng(0)
    rows = [sample(len(graph.runtimes), count, generator) for graph in graphs]
    return steps.plan(graphs, np.stack(rows))


def say_devices() -> str:
    """Describe the devices in a sentence."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} beside one core of the CPU."
    return "One core of the CPU: no GPU was found, so nothing here says what one would take."


def tabulate(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> Table:
    """Return a table of the rows of one net."""
    names = ("Step, ms", "Planned", "Learned/s", "Scored/s", "MB", "Waits", "Agrees")
    table = make_table(str(rows[0][0]["name"]))
    for name in ("Device, batch", *names):
        table.add_column(name, justify="right" if name in names else "left", no_wrap=True)
    first = np.array(rows[0][1]["scores"])
    for row, found in rows:
        agrees = kendall_tau(np.array(found["scores"]), first)
        table.add_row(*show(row, found), f"{agrees:.3f}")
    return table


def show(row: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return a row's cells, except the last column."""
    device, bits = "GPU" if row["device"] == "cuda" else "CPU", row["precision"].split("-")[0]
    return [
        f"{device} {bits.replace('32', 'fp32')}, x {row['larger']}",
        f"{1e3 * found['step']:,.1f}",
        f"{found['planned'] / found['step']:.0%}",
        f"{found['learned']:,.0f}",
        f"{found['scored']:,.0f}",
        f"{found['memory']:,.0f}",
        "" if found["waits"] is None else str(found["waits"]),
    ]


if __name__ == "__main__":
    typer.run(main)
