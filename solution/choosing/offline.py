"""Search without compiling: in a table of known runtimes, or by the model's scores alone."""

from pathlib import Path

import numpy as np

from solution.choosing.guided import DOUBT, FAR_DOUBT, Beliefs
from solution.choosing.live_prior import UNLED
from solution.choosing.methods import OURS, describe_unled, is_led, make_proposer
from solution.choosing.proposer import Proposer
from solution.choosing.replay import Lookup, Table, TablePrior, make_table
from solution.choosing.search import Budget, search
from solution.serving.bundle import Bundle
from solution.serving.ranking import KNOWN, Ranking
from solution.serving.reading import read_graph, read_question
from solution.serving.words import describe_configs
from solution.system.errors import InputError

SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)


def replay_file(
    path: Path,
    bundle: Bundle | None,
    collection: str | None,
    measurements: int,
    seed: int,
    search_by: str = OURS,
) -> str:
    """Say in words what a search with this many measurements finds in a file with runtimes.

    Compile options are searched without a model: no bundle learned from them.

    Args:
        bundle: its models guide the search; None for a search without a model.
        search_by: a name in solution.choosing.methods.METHODS.

    Raises InputError if the file has no runtimes or only one configuration, or the bundle has no
    model for it.
    """
    question = read_question(path, collection)
    graph = question.graph
    if question.made:  # generated configurations have no runtimes
        raise InputError(
            f"{path}: has one configuration, and there is nothing else to look up. Give a graph "
            "with several measured ones, or leave --replay out."
        )
    table = make_table(graph)
    ranking = None if bundle is None or graph.options is not None else bundle.rank(graph)
    proposer = _make_proposer(search_by, table, ranking, seed)
    trials = search(proposer, Lookup(table), Budget(measurements))
    fastest = min(trials, key=lambda trial: trial.time)
    config = table.first[table.space.names.index(fastest.name)]
    best = np.minimum.accumulate([trial.time for trial in trials]) / table.runtimes.min() - 1
    counts = sorted({*(k for k in SHOWN if k < len(best)), len(best)})
    shown = ", ".join(f"{k}: {best[k - 1]:.2%}" for k in counts)
    return (
        f"{graph.name}: looked {len(trials)} of {len(table.runtimes):,} configurations up; "
        f"nothing was compiled.{_describe_lead(search_by, ranking)}\n"
        f"Best found: {config}, {describe_configs(graph, np.array([config]))[0]}.\n"
        f"Slower than the best of the table, after n measurements: {shown}."
    )


def _describe_lead(name: str, ranking: Ranking | None) -> str:
    if not is_led(name):
        return f" {describe_unled(name)}"
    if ranking is None:
        return f" {UNLED}"
    return f" {KNOWN}" if ranking.known else ""


def _make_proposer(name: str, table: Table, ranking: Ranking | None, seed: int) -> Proposer:
    """Return an optimizer guided by the ranking; for compile options there is no ranking."""
    if ranking is None:
        return make_proposer(name, table.space, None, Beliefs(), seed)
    prior = TablePrior(table.space, ranking.scores[table.first])
    doubt = FAR_DOUBT if ranking.abstained else DOUBT
    beliefs = Beliefs(ranking.graph.collection.kind, doubt)
    return make_proposer(name, table.space, prior, beliefs, seed)


def follow_model(path: Path, bundle: Bundle, collection: str | None, seed: int) -> str:
    """Name the configuration with the best score, in words; nothing is measured."""
    graph = read_graph(path, collection)
    ranking = bundle.rank(graph)
    best = int(ranking.order[0])
    return (
        f"{graph.name}: of {graph.num_configs:,} configurations the model ranks {best} first: "
        f"{describe_configs(graph, np.array([best]))[0]}.\nNothing was measured, so it may be "
        f"slower than the compiler's own choice. {ranking.sentence()}"
    )
