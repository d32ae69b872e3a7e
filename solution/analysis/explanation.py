"""Explain in words and numbers why a ranker predicts one configuration slower than another.

The explanation says how much each column of the feature table adds to the difference of the two
scores; positive means slower. For trees these are exact SHAP values, LightGBM's `pred_contrib`; for
linear models, weight times value.

Source: Lundberg et al., "From local explanations to global understanding with explainable AI for
trees", Nature Machine Intelligence, 2020.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from rich.table import Table
from rich.text import Text

from solution.domain import predictions
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment, list_experiments
from solution.features.column import Feature
from solution.models.base import Ranker
from solution.models.catalogue import Model, load_model
from solution.models.linear import LinearRanker
from solution.models.trees.boosted_trees import BoostedTrees
from solution.runs.folder import EXPERIMENTS, Run, recall_command
from solution.runs.job import MODEL
from solution.serving.words import describe_configs
from solution.system.errors import InputError
from solution.system.terminal import make_table
from solution.system.wording import compare_times, count
from solution.training.failures import is_own
from solution.training.folds import NO_FOLD

SHOWN = 12  # maximum number of columns in a table of the explanation
NAMED = 3  # number of columns that the explanation in words names
READABLE = 24  # minimum width, in characters, of a table column that contains sentences


def explain_difference(ranker: Ranker, rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return each column's contribution to the scores of `rows` minus the score of `reference`.

    Args:
        rows: (k, columns) of the feature table; a higher score means slower.
        reference: (columns,) the row that `rows` are compared with.

    Returns:
        (k, columns); the sum over columns is the difference of the scores.

    Raises InputError unless the ranker is linear or made of trees.
    """
    ranker = check_explained(ranker)
    both = np.concatenate([reference[None], rows])
    if isinstance(ranker, BoostedTrees):
        # Change of the score per unit of the trees' output: -1 if the trees predict relevance,
        # which is high for fast configurations.
        sign = ranker.score(np.ones(1), 1)[0] - ranker.score(np.zeros(1), 1)[0]
        # leave out the last column, the constant term
        found = sign * ranker.predict_rows(both, pred_contrib=True)[:, :-1]
    else:
        found = ranker.contributions(both)
    return found[1:] - found[:1]


def check_explained(ranker: Ranker) -> BoostedTrees | LinearRanker:
    """Return the ranker; raise InputError unless it is linear or made of trees."""
    if not isinstance(ranker, BoostedTrees | LinearRanker):
        raise InputError(
            f"a {type(ranker).__name__} cannot be explained: expected trees, a linear model or a "
            "net whose costs add up, such as tile_lightgbm_001, linear_ridge_001 or "
            "layout_cost_net_001."
        )
    return ranker


def measure_importance(ranker: Ranker) -> np.ndarray:
    """Return each column's share (columns,) of the trees' gain or of absolute linear weights."""
    ranker = check_explained(ranker)
    if isinstance(ranker, BoostedTrees):
        weights = ranker.fitted().feature_importance("gain")
    else:
        weights = np.abs(ranker.weights_)
    return np.asarray(weights, np.float64) / max(float(np.sum(weights)), 1e-12)


@dataclass(frozen=True)
class Comparison:
    """Two configurations of a graph, and the ranker's scores of all its configurations."""

    graph: Graph
    ranker: Ranker
    slow: int  # number of the configuration that is explained
    fast: int  # number of the configuration predicted fastest, with which `slow` is compared
    scores: np.ndarray  # (configs,) predicted scores; higher means slower
    asked: int | None  # the configuration that the user asked about; None: the slowest

    def rank(self, config: int) -> int:
        """Return the predicted rank of a configuration; 1 is the fastest."""
        return int((self.scores < self.scores[config]).sum()) + 1


@dataclass(frozen=True)
class Explanation(Comparison):
    """Two configurations, and each feature column's contribution to the difference of scores."""

    rows: np.ndarray  # (configs, columns) float32: the feature table
    features: tuple[Feature, ...]
    # (columns,) each column's contribution to the score of `slow` minus the score of `fast`
    contributions: np.ndarray
    importance: np.ndarray  # (columns,) see measure_importance

    @property
    def order(self) -> np.ndarray:
        """Return the column numbers, the largest absolute contribution first."""
        return np.argsort(-np.abs(self.contributions), kind="stable")

    def values(self, column: int) -> list[float]:
        """Return a column's values in `slow` and `fast`, in plain units: logarithms are undone."""
        unit, values = self.features[column].unit, self.rows[[self.slow, self.fast], column]
        if unit.startswith("log1p "):
            values = np.expm1(values)
        elif unit.startswith("log "):
            values = np.exp(values)
        return list(map(float, values))


def compare(ranker: Ranker, graph: Graph, config: int | None = None) -> Comparison:
    """Compare the configuration `config` (default: predicted slowest) with the predicted fastest.

    If `config` itself is predicted fastest (ties included), compare it with the configuration
    predicted slowest. Raises InputError if `config` does not exist, or all configurations have the
    same score.
    """
    scores = ranker.predict(graph)
    slow, fast = int(np.argmax(scores)), int(np.argmin(scores))
    if config is not None and not 0 <= config < graph.num_configs:
        raise InputError(
            f"{graph.name} has no configuration {config}. They are numbered 0 to "
            f"{graph.num_configs - 1}."
        )
    if scores[slow] == scores[fast]:
        raise InputError(
            f"{graph.name}: expected configurations of which one is predicted slower than another, "
            f"found {count(graph.num_configs, 'configuration')} with one score. Name another graph."
        )
    if config is not None:
        slow, fast = (slow, config) if scores[config] == scores[fast] else (config, fast)
    return Comparison(graph, ranker, slow, fast, scores, config)


def explain(ranker: Ranker, graph: Graph, config: int | None = None) -> Explanation:
    """Return how each column of the feature table contributes to the difference between the scores
    of `config` and the fastest configuration (chosen as in `compare`). Raises InputError if
    `config` does not exist, all scores are equal, or the ranker is neither trees nor linear."""
    columns, compared = check_explained(ranker), compare(ranker, graph, config)
    rows = columns.rows_of(graph)[graph.distinct.inverse]
    return Explanation(
        **vars(compared),
        rows=rows,
        features=columns.features_of(graph),
        contributions=explain_difference(ranker, rows[[compared.slow]], rows[compared.fast])[0],
        importance=measure_importance(ranker),
    )


def find_explained(name: str, run: Run) -> Experiment:
    """Return an experiment by its name, or by the path of its file. Raises InputError if there is
    none, or if the user's file has changed since the run was trained."""
    if name in set(run.experiments()) - set(list_experiments()):
        raise InputError(
            f"{name}: an experiment of {run.folder} that is defined in your file. Give the path of "
            "that file."
        )
    found = find_experiment(name)
    trained = run.record()["settings"][EXPERIMENTS].get(found.name, {}).get("source")
    if is_own(found) and trained not in (None, found.source):
        raise InputError(
            f"{found.origin}: was changed after {run.folder} was trained by it, so its models "
            "would be read by other code. Give the file as it was, or train what it is now under "
            "another name, or in another folder."
        )
    return found


def load_unseen(run: Run, experiment: Experiment, graph: Graph) -> tuple[Model, Path]:
    """Return a model of the run that was not trained on the graph, and the folder of its job.
    Raises InputError if there is no such model."""
    graphs = predictions.read(run.graphs).filter(
        pl.col("collection") == graph.collection.name, pl.col("graph") == graph.name
    )
    fold = graphs["fold"][0] if len(graphs) else NO_FOLD
    folders = run.jobs(experiment.name, graph.collection.name)
    if fold != NO_FOLD:  # a graph without a fold was in no training set, so any model will do
        if folders and all(folder.name.startswith(f"fold-{NO_FOLD}-") for folder in folders):
            raise InputError(
                f"{run.folder}: every model of {experiment.name} for {graph.collection.name} has "
                f"seen {graph.name}: there are too few programs to leave one out."
            )
        folders = [folder for folder in folders if folder.name.startswith(f"fold-{fold}-")]
    if not folders:
        command = recall_command(run, experiment.name)
        raise InputError(
            f"{run.folder}: has no model of {experiment.name} for {graph.collection.name} that has "
            f"not seen {graph.name}. Train it with `{command}`."
        )
    return load_model(folders[0] / MODEL, [experiment.ranker]), folders[0]


def describe(compared: Comparison, reasons: Sequence[str], whole: Graph | None = None) -> str:
    """Return a text: both configurations, their predicted ranks, which one to take, and why.

    Args:
        reasons: why `compared.slow` is slower, as name_reasons returns them.
        whole: the graph with all its nodes, whose numbers name them; None: as the model got it.
    """
    graph, slow, fast = compared.graph, compared.slow, compared.fast
    what = describe_configs(graph if whole is None else whole, np.array([slow, fast]))
    same = int((compared.scores == compared.scores[slow]).sum()) - 1
    tied = f" (tied with {same})" if same else ""
    text = ""
    if compared.asked == fast:
        text = (
            f"Configuration {fast} is itself predicted fastest, so the one predicted slowest is "
            "explained beside it. "
        )
    text += (
        f"Configuration {slow} of {graph.name} ({what[0]}) is predicted "
        f"{_ordinal(compared.rank(slow))} of {graph.num_configs}{tied}, "
        f"configuration {fast} ({what[1]}) fastest"
    )
    ratio = 1.0
    if graph.runtimes is not None:
        ratio = graph.runtimes[slow] / graph.runtimes[fast]
        text += f"; measured, it takes {compare_times(ratio)}"
    if ratio < 1:
        text += f". The prediction is wrong here: take {slow}"
    elif slow != fast:
        text += f". Take {fast}"
    if reasons:
        text += f". What speaks against {slow} most: {'; '.join(reasons)}"
    return text + "."


def name_reasons(explanation: Explanation) -> list[str]:
    """Return in words the columns that add most to the score of the slow configuration, at most
    NAMED. Columns with the same value in both configurations are left out."""
    differs = explanation.rows[explanation.slow] != explanation.rows[explanation.fast]
    speaks = differs & (explanation.contributions > 0)
    against = [column for column in explanation.order if speaks[column]]
    return [_name_column(explanation, int(column)) for column in against[:NAMED]]


def show_contributions(explanation: Explanation) -> Table:
    """Return a table of the columns that contribute most to the difference of the two scores."""
    slow, fast = explanation.slow, explanation.fast
    table = make_table(
        Text(f"Why {slow} is predicted slower than {fast}: + slower, - faster"),
        "Contributions add up to the difference of the two scores. A column with the same value in "
        "both may add to it as well: trees weigh columns together.",
        expendable=("Unit and reason",),
        names=("Feature",), numbers=(f"config {slow}", f"config {fast}", "adds"),
    )  # fmt: skip
    table.add_column("Unit and reason", min_width=READABLE)
    for column in explanation.order[:SHOWN]:
        feature = explanation.features[column]
        values = [f"{value:.4g}" for value in explanation.values(column)]
        adds = f"{explanation.contributions[column]:+.3f}"
        table.add_row(feature.name, *values, adds, f"{_plain_unit(feature)}: {feature.reason}")
    rest = explanation.contributions[explanation.order[SHOWN:]].sum()
    table.add_row("all others", "", "", f"{rest:+.3f}", "")
    table.add_row("sum", "", "", f"{explanation.contributions.sum():+.3f}", "")
    return table


def show_importance(features: Sequence[Feature], importance: np.ndarray) -> Table:
    """Return a table of the columns that the model uses most. `importance`: (columns,) as
    measure_importance returns it."""
    table = make_table(
        "What the model uses most",
        names=("Feature",), numbers=("Share",), texts=("Unit and reason",),
    )  # fmt: skip
    for column in np.argsort(-importance, kind="stable")[:SHOWN]:
        feature = features[column]
        row = (feature.name, f"{importance[column]:.1%}", f"{feature.unit}: {feature.reason}")
        table.add_row(*row)
    return table


def _name_column(explanation: Explanation, column: int) -> str:
    feature = explanation.features[column]
    slow, fast = explanation.values(column)
    times = f", {slow / fast:.3g} times as much" if slow > fast > 0 else ""
    return (
        f"{feature.name} is {slow:.4g} against {fast:.4g}{times} ({_plain_unit(feature)}): "
        f"{feature.reason}"
    )


def _plain_unit(feature: Feature) -> str:
    return feature.unit.removeprefix("log1p ").removeprefix("log ")


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    teens = 10 <= number % 100 <= 20
    return f"{number}{'th' if teens else endings.get(number % 10, 'th')}"
