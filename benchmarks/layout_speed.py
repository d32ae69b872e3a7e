"""Measure how many configurations per second our layout net and TGraph train on and score."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from rich.text import Text

from benchmarks.timed_fits import with_epochs
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import LAYOUT
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_loop import train
from solution.papers.tgraph import TGraphSettings
from solution.system.report import silent
from solution.system.terminal import make_table
from solution.training.plan import IS_LABELLED, Plan

WIDTH = 256
TIMED_GRAPHS, TIMED_ROUNDS = 12, 3
FEWEST_CONFIGS = 64  # of a timed graph
Settings = LayoutGnnSettings | TGraphSettings


def bench_speed(
    ours: LayoutGnnSettings, theirs: TGraphSettings, groups: Mapping[str, Sequence[Graph]]
) -> Table:
    """Time both alternately, at the same width on the same graphs; configurations per second."""
    torch.set_num_threads(1)
    rounds = " and ".join(map(str, ours.rounds))
    table = make_table(
        Text(f"Configurations per second at width {WIDTH}, our rounds {rounds}; over TGraph's")
    )
    for name in ("Graphs", "Training", "Ratio", "Predicting", "Ratio"):
        table.add_column(name, justify="left" if name == "Graphs" else "right", no_wrap=True)
    nets = [dataclasses.replace(settings, width=WIDTH) for settings in (ours, theirs)]
    ratios: dict[str, np.ndarray] = {}
    for group, graphs in groups.items():
        rankers = [with_epochs(settings, 1).build(0).fit(graphs, []) for settings in nets]
        rates = np.array([[time_net(ranker, graphs) for ranker in rankers]
                          for _ in range(TIMED_ROUNDS)])  # fmt: skip
        rate = np.median(rates[:, 0], axis=0)
        ratios[group] = np.median(rates[:, 0] / rates[:, 1], axis=0)
        table.add_row(group, f"{rate[0]:,.0f}", f"{ratios[group][0]:.1f}",
                      f"{rate[1]:,.0f}", f"{ratios[group][1]:.1f}")  # fmt: skip
    for kind in ("CPU", "TPU"):
        own = [ratio for group, ratio in ratios.items() if group.startswith(kind)]
        if own:
            mean = np.exp(np.mean(np.log(own), axis=0))
            table.add_row(f"{kind}, geometric mean (bar: 5)", "", f"{mean[0]:.1f}",
                          "", f"{mean[1]:.1f}")  # fmt: skip
    return table


def choose_timed(plan: Plan, tpu: Path | None) -> dict[str, list[Graph]]:
    """Return measured CPU graphs of every collection, and real TPU graphs with the official
    1,000."""
    graphs: dict[str, list[Graph]] = {}
    for name in LAYOUT:
        graphs[f"CPU {name}"] = list(plan.load(plan.rows(name, IS_LABELLED)))[:TIMED_GRAPHS]
    for file in find_files(tpu) if tpu is not None else ():
        if file.collection.name in LAYOUT:
            graph = Preparation(1)(read_graph(file.path, file.collection))
            graph = graph.select(choose_configs(graph.key, graph.num_configs))
            if len(graph.distinct.first) >= FEWEST_CONFIGS:
                group = graphs.setdefault(f"TPU {file.collection.name}", [])
                group.append(dataclasses.replace(graph, runtimes=_made_up(graph)))
    return graphs


def _made_up(graph: Graph) -> np.ndarray:
    """Return the graph with synthetic labels: test graphs have none, and any take the same time."""
    return 1 + np.random.default_rng(0).random(graph.num_configs)


def time_net(ranker: NetRanker[Any, Any], graphs: Sequence[Graph]) -> tuple[float, float]:
    """Return configurations per second of a training epoch, and of predicting."""
    assert ranker.net_ is not None
    examples = [ranker._scaled(ranker._example(graph, None)) for graph in graphs]
    settings = dataclasses.replace(ranker.settings.training, visits=1)
    started = time.perf_counter()
    train(ranker.net_, examples, [], settings, 0, silent)
    learned = len(graphs) * settings.configs_per_graph / (time.perf_counter() - started)
    started = time.perf_counter()
    for example in examples:
        ranker.net_.score_graph(example.inputs)  # type: ignore[operator]
    scored = sum(len(example.runtimes) for example in examples)
    return learned, scored / (time.perf_counter() - started)
