"""Measure the latency of answers: import, load, first answer, each further configuration.

`python -m benchmarks.rank_latency RUN --distilled BUNDLE --tpu FOLDER` measures the distilled
bundle, the run's ensemble and each of its members, each in a separate process with one thread;
then TGraph's forward pass, LightGBM's predictor, and lleaves if it is installed. Times are
processor time, so that other processes hardly affect them.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.memory import memory, run_apart

LAYOUTS, TILES = 1000, 100
LONG = 10_000  # slower calls are made only once
NEIGHBOURS = 64
TIMES = 3  # repetitions, of which the fastest counts
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KERNEL = "npz/tile/xla/test/bmm_007.npz"  # in the sample
# in TpuGraphs: 73 nodes after pruning
SMALL = "npz/layout/xla/random/train/alexnet_train_batch_32.npz"
LARGE = (21_918, 35_000, 720)  # nodes, edges, configurable: 2,854 after pruning


def since(start: float) -> float:
    """Return milliseconds of processor time."""
    return 1000 * (time.process_time() - start)


def fastest(function: Callable[[], Any]) -> float:
    """Return milliseconds of the fastest call."""
    times = []
    for _ in range(TIMES):
        start = time.process_time()
        function()
        times.append(since(start))
    return min(times)


def ask(bundle: str, programs: list[str]) -> dict[str, float]:
    """Measure a bundle in this process; programs without a model are left out."""
    start = time.process_time()
    from solution import load_bundle, read_graph

    load_bundle.__module__  # noqa: B018 - the attribute access imports it
    found = {"import": since(start)}
    start = time.process_time()
    opened = load_bundle(bundle)
    found["load"] = since(start)
    for name in programs:
        place, _, file = name.partition("=")
        graph = read_graph(file)
        if graph.collection.name not in opened.collections:
            continue
        opened.choose(graph.collection.name)
        found |= _ask_for(opened, graph, place)
    found["memory"] = memory("VmHWM")
    return found


def _ask_for(bundle: Any, graph: Any, place: str) -> dict[str, float]:
    """Measure the first answer, an answer of the same size, and each further configuration."""
    count = TILES if place == "kernel" else LAYOUTS
    few, many = (graph.select(_first(graph, number)) for number in (count // 10, count))
    start = time.process_time()
    bundle.rank(many)
    cold = since(start)
    if cold > LONG:
        return {f"{place} cold": cold}
    took = [fastest(partial(_rank_anew, bundle, asked)) for asked in (few, many)]
    each = 1000 * (took[1] - took[0]) / (many.num_configs - few.num_configs)
    found = {f"{place} cold": cold, f"{place} warm": took[1], f"{place} each": each}
    return found if place == "kernel" else found | _ask_for_neighbours(bundle, many, place)


def _ask_for_neighbours(bundle: Any, graph: Any, place: str) -> dict[str, float]:
    """Measure a scorer's first answer and the next ones, each with three layouts changed."""
    import numpy as np

    layouts, generator = graph.layouts.expand(), np.random.default_rng(0)
    neighbours = np.repeat(layouts[:1], NEIGHBOURS, axis=0)
    for neighbour in neighbours:
        nodes = generator.integers(0, layouts.shape[1], 3)
        neighbour[nodes] = layouts[generator.integers(0, len(layouts)), nodes]
    session = bundle.session(graph)
    start = time.process_time()
    session.score(layouts[:1])
    opened = since(start)
    each = 1000 * fastest(partial(session.score, neighbours)) / NEIGHBOURS
    return {f"{place} session": opened, f"{place} neighbour": each}


def _rank_anew(bundle: Any, graph: Any) -> None:
    """Rank without anything cached about the graph."""
    bundle.rank(dataclasses.replace(graph))


def _first(graph: Any, count: int) -> Any:
    import numpy as np

    return np.arange(min(count, graph.num_configs))


def ask_tgraph(programs: list[str]) -> dict[str, float]:
    """Measure TGraph's forward pass on the same layouts, including features."""
    from solution import read_graph
    from solution.features.preparation import Preparation
    from solution.models.nets.training_settings import TrainingSettings
    from solution.papers.tgraph import TGraphSettings
    from tests.made.graphs import make_layout_graph

    settings = TGraphSettings(training=TrainingSettings(epochs=1, configs_per_graph=8))
    ranker = settings.build(0).fit([make_layout_graph(0)], [])
    found = {}
    for name in programs:
        place, _, file = name.partition("=")
        if place == "small":  # it takes minutes for the large one
            graph = read_graph(file)
            asked = graph.select(_first(graph, LAYOUTS))
            start = time.process_time()
            ranker.predict(Preparation(settings.needed_hops)(asked))
            found[f"{place} cold"] = since(start)
    return found | {"memory": memory("VmHWM")}


def ask_trees(model: str) -> dict[str, float]:
    """Return microseconds per row of LightGBM's predictor and of lleaves, without features."""
    import lightgbm
    import numpy as np

    booster = lightgbm.Booster(model_file=model)
    rows = np.random.default_rng(0).normal(size=(LAYOUTS, booster.num_feature()))
    took = {"LightGBM": fastest(lambda: booster.predict(rows, num_threads=1))}
    if find_spec("lleaves") is not None:
        import lleaves

        compiled = lleaves.Model(model_file=model)
        compiled.compile()
        took["lleaves"] = fastest(lambda: compiled.predict(rows, n_jobs=1))
    return took


def call(*arguments: str) -> dict[str, float]:
    """Run a measurement in a separate process with one thread."""
    return run_apart(__spec__.name, *arguments, **dict.fromkeys(THREADS, "1"))


def find_programs(tpu: Path | None, folder: Path) -> list[str]:
    """Return place=FILE of a tile kernel, a small TPU program, a large synthetic one."""
    from benchmarks.programs import make_program
    from solution.data.folders import SAMPLE
    from solution.domain.codebook import encode
    from solution.domain.collection import collection
    from solution.domain.graph import Graph
    from solution.features.candidates import make_candidates
    from tests.made.graphs import write_graph

    found = [f"kernel={SAMPLE / KERNEL}"]
    if tpu is not None and (tpu / SMALL).is_file():
        found.append(f"small={tpu / SMALL}")
    import numpy as np

    made = make_program(0, *LARGE)
    unset = encode(np.full((1, len(made.configurable), 18), -1, np.int8))
    graph = Graph("large", collection("layout:xla:random"), made.features, made.opcodes, made.edges,
                  made.configurable, unset, None)  # fmt: skip
    return [*found, f"large={write_graph(make_candidates(graph, LAYOUTS), folder, 'test')}"]


def show(rows: dict[str, dict[str, float]]) -> Table:
    """Print a row per variant; in brackets the ratio to the distilled bundle."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table = Table(title="ms of the processor; each, neighbour: us a configuration; memory: MB")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    first = next(iter(rows.values()))
    for way, row in rows.items():
        cells = [
            f"{row[name]:.1f} ({row[name] / first[name]:.1f}x)" if first.get(name) and name in row
            else f"{row[name]:.1f}" if name in row else "-"
            for name in columns
        ]  # fmt: skip
        table.add_row(way, *cells)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--distilled", type=Path)
    parser.add_argument("--tpu", type=Path)
    parser.add_argument("--ask", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        what, *rest = options.ask
        way = {"bundle": lambda: ask(rest[0], rest[1:]), "tgraph": lambda: ask_tgraph(rest),
               "trees": lambda: ask_trees(rest[0])}[what]  # fmt: skip
        print(json.dumps(way()))
        return
    rows: dict[str, dict[str, float]] = {}
    trees: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = find_programs(options.tpu, Path(folder))
        if options.distilled:
            rows["distilled"] = call("--ask", "bundle", str(options.distilled), *programs)
        if options.run:
            for name, bundle in pack_all(options.run, Path(folder)).items():
                rows[name] = call("--ask", "bundle", str(bundle), *programs)
            for model in sorted(options.run.glob("tile_lightgbm_001/jobs/*/*/model/model.txt"))[:1]:
                trees = call("--ask", "trees", str(model))
        rows["TGraph, forward pass"] = call("--ask", "tgraph", *programs)
    Console(width=220).print(show(rows))
    for name, took in trees.items():
        print(f"{name}: {1000 * took / LAYOUTS:.2f} us a row of {LAYOUTS}, without features")


def pack_all(folder: Path, out: Path) -> dict[str, Path]:
    """Pack the ensemble and each of its members as bundles."""
    from ensembles.merge import alone
    from ensembles.recipe import choose_recipe
    from solution.runs.folder import Run
    from solution.serving.packing import pack

    run = Run.existing(folder)
    recipe = choose_recipe(run, None)
    present = [name for name in recipe.names() if name in run.experiments()]
    recipes = {"ensemble": recipe, **{name: alone(name) for name in present}}
    return {name: pack(run, one, out / f"{name}.zip") for name, one in recipes.items()}


if __name__ == "__main__":
    main()
