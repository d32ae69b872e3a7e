"""Train boosted trees on the feature tables: the part that all rankers of trees share.

A subclass defines the training rows and their labels. With any loss, early stopping uses the
collection's score on the validation graphs.

Source: LightGBM (Ke et al., NIPS 2017). An entry without any net was 11th in the competition. Trees
are cheap to train, and in an ensemble with nets they differ most from the other members.

A saved model is a text file of LightGBM, whose reader may crash on damaged text. The file may come
from anywhere, so it is parsed strictly here, and LightGBM reads a new text: a fixed head (with the
number of columns and the objective) and the checked lines of the trees. All other lines (training
parameters, importances, unknown sections) are dropped.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import lightgbm
import numpy as np

from solution.domain.graph import Graph
from solution.domain.metrics import score_ranking
from solution.features.column import Feature
from solution.features.table import distinct_rows, list_features
from solution.models.base import Ranker, RankerSettings
from solution.models.sampling import choose_rows, share_rows
from solution.system.errors import InputError
from solution.system.files import open_regular
from solution.system.report import Report, silent

# maximum number of bytes of a model's text; models trained here have a few hundred thousand
MAX_BYTES = 1 << 28
END = "end of trees"
OBJECTIVE = re.compile(r"[a-z_]{1,40}( sigmoid:[0-9.]{1,10})?")
NUMBERS = re.compile(r"[-+0-9.e ]*")
# Lines of a tree's text, in order, with the types of their numbers: OF_SPLITS and INTERNAL have one
# number per split, OF_LEAVES one per leaf.
OF_SPLITS = {
    "split_feature": np.int64,
    "split_gain": np.float64,
    "threshold": np.float64,
    "decision_type": np.int64,
    "left_child": np.int64,
    "right_child": np.int64,
}
OF_LEAVES = {"leaf_value": np.float64, "leaf_weight": np.float64, "leaf_count": np.int64}
INTERNAL = {"internal_value": np.float64, "internal_weight": np.float64, "internal_count": np.int64}
# names of all lines of a tree's text, in order
TREE = ("num_leaves", "num_cat", *OF_SPLITS, *OF_LEAVES, *INTERNAL, "is_linear", "shrinkage")
# all lines with one number per split
OF_A_SPLIT = OF_SPLITS | INTERNAL
# Bits of decision_type that are allowed. The bit of value 1, a categorical split, is not.
DEFAULT_LEFT, MISSING_NAN = 2, 8
MODEL = "model.txt"
SMALL_TABLE = 1 << 20  # LightGBM uses one thread for a table of fewer numbers


@dataclass(frozen=True)
class Tree:
    """A decision tree that compares one column in each split; the root is split 0, and a child c <
    0 is the leaf ~c."""

    feature: np.ndarray  # (splits,) int64: the column that is compared
    threshold: np.ndarray  # (splits,) float64: a row with at most this value goes left
    left: np.ndarray  # (splits,) int64: left child of each split
    right: np.ndarray  # (splits,) int64: right child of each split
    value: np.ndarray  # (splits + 1,) float64: output of each leaf


@dataclass(frozen=True)
class ForestText:
    """A checked model: the trees parsed from a text, and a new text that LightGBM reads safely."""

    text: str
    columns: int  # number of columns of the rows to predict
    trees: tuple[Tree, ...]


class _TextError(ValueError):
    """The text is not a model that LightGBM wrote."""


def read_forest(path: Path) -> ForestText:
    """Read and check trees in LightGBM's text file. Raises InputError if there is no file, or if it
    holds anything but trees that compare one column in each split."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _TextError(f"it has more than {MAX_BYTES:,} bytes")
        return parse_forest(content.decode("ascii"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file. Train the model again.") from error
    except ValueError as error:
        raise InputError(
            f"{path}: expected trees as LightGBM writes them, but {error}. Train the model again."
        ) from error


def parse_forest(text: str) -> ForestText:
    """Check a model's text; return its trees, and a new text for LightGBM: a fixed head with the
    number of columns and the objective, and the checked lines of the trees. Raises ValueError if
    LightGBM did not write the text."""
    body, _, rest = text.partition(f"\n{END}\n")
    if not rest:
        raise _TextError(f"a line {END!r} is missing")
    head, *blocks = re.split(r"\n\n+(?=Tree=)", body.rstrip("\n"))
    columns, objective = _check_head(head)
    parsed = [_parse_tree(block, number, columns) for number, block in enumerate(blocks)]
    if not parsed:
        raise _TextError("it has no tree")
    lines = [
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0",
        f"max_feature_idx={columns - 1}\nobjective={objective}",
        f"feature_names={' '.join(f'Column_{number}' for number in range(columns))}",
        f"feature_infos={' '.join(['none'] * columns)}\n",
        *(f"{lines}\n\n" for lines, _ in parsed),
        f"{END}\n\npandas_categorical:null\n",
    ]
    return ForestText("\n".join(lines), columns, tuple(tree for _, tree in parsed))


def _check_head(head: str) -> tuple[int, str]:
    """Return the number of columns, and the objective, which transforms the sum of leaves."""
    first, *lines = head.split("\n")
    pairs = dict(line.split("=", 1) for line in lines if "=" in line)
    expected = {"version": "v4", "num_class": "1", "num_tree_per_iteration": "1"}
    for name, value in expected.items():
        if first != "tree" or pairs.get(name) != value:
            raise _TextError(f"{name} is {_show(pairs.get(name))}, expected {value}")
    objective, last = pairs.get("objective", ""), pairs.get("max_feature_idx", "")
    if not OBJECTIVE.fullmatch(objective):
        raise _TextError(f"objective is {_show(objective)}")
    columns = int(last) + 1 if re.fullmatch(r"[0-9]{1,6}", last) else 0
    if columns != len(pairs.get("feature_names", "").split(" ")):
        raise _TextError(f"max_feature_idx is {_show(last)}, which are not as many as its names")
    return columns, objective


def _parse_tree(block: str, number: int, columns: int) -> tuple[str, Tree]:
    """Check the lines of tree `number`; return the lines and the tree parsed from them."""
    first, *lines = block.split("\n")
    pairs = [line.partition("=") for line in lines]
    if first != f"Tree={number}" or tuple(name for name, _, _ in pairs) != TREE:
        raise _TextError(f"tree {number} has other lines")
    values = {name: value for name, _, value in pairs}
    for name, value in values.items():
        if not NUMBERS.fullmatch(value):
            raise _TextError(f"{name} of tree {number} is {_show(value)}")
    if (values["num_cat"], values["is_linear"]) != ("0", "0"):
        raise _TextError(f"tree {number} has categories or linear leaves")
    leaves = int(values["num_leaves"])
    lengths = dict.fromkeys(OF_A_SPLIT, leaves - 1) | dict.fromkeys(OF_LEAVES, leaves)
    # The line leaf_weight may be empty for a tree without a split.
    if leaves == 1 and not values["leaf_weight"]:
        lengths["leaf_weight"] = 0
    arrays = {
        name: _numbers(values[name], kind, name, lengths[name])
        for name, kind in {**OF_A_SPLIT, **OF_LEAVES}.items()
    }
    _numbers(values["shrinkage"], np.float64, "shrinkage", 1)
    tree = Tree(*(arrays[name] for name in ("split_feature", "threshold", "left_child",
                                            "right_child", "leaf_value")))  # fmt: skip
    _check_tree(tree, arrays["decision_type"], number, columns)
    return block, tree


def _numbers(text: str, kind: type, name: str, length: int) -> np.ndarray:
    found: np.ndarray = np.array(text.split(), kind)
    if len(found) != length or not np.isfinite(found).all():
        raise _TextError(f"{name} has {len(found)} finite numbers, expected {length}")
    return found


def _check_tree(tree: Tree, decisions: np.ndarray, number: int, columns: int) -> None:
    """Raise _TextError unless the splits form a tree (each node is reached once), compare existing
    columns, and use thresholds."""
    # In a tree, every leaf and every split but the root is a child exactly once; here, a split's
    # number also exceeds its parent's.
    splits = len(tree.feature)
    children = np.concatenate([tree.left, tree.right])
    nodes, leaves = np.arange(1, splits), ~np.arange(splits + bool(splits))
    later = children[children >= 0] > np.tile(np.arange(splits), 2)[children >= 0]
    if sorted(children) != sorted([*nodes, *leaves]) or not later.all():
        raise _TextError(f"the nodes of tree {number} form no tree")
    if ((tree.feature < 0) | (tree.feature >= columns)).any():
        raise _TextError(f"tree {number} asks for other columns than 0 to {columns - 1}")
    if (decisions & ~(DEFAULT_LEFT | MISSING_NAN)).any():
        raise _TextError(f"tree {number} decides by other rules than up to a threshold")


def _show(value: object) -> str:
    return repr(value)[:60]


@dataclass(frozen=True)
class TreeSettings(RankerSettings):
    """Settings of all rankers of boosted trees; parameters of LightGBM have LightGBM's names."""

    rounds: int = 400
    patience: int = 60  # training stops after this many rounds without a better validation score
    learning_rate: float = 0.05
    num_leaves: int = 15
    min_data_in_leaf: int = 20
    feature_fraction: float = 0.5
    lambda_l2: float = 1.0
    # at most this many distinct configurations of a graph are used for training
    max_configs: int = 1000
    # approximate maximum number of rows of the training table, and of the validation table
    max_rows: int = 1_000_000

    def quick(self) -> Self:
        """Return the settings with a tenth of the trees."""
        return replace(self, rounds=-(-self.rounds // 10))

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return parameters of deterministic LightGBM trainings on a table of `values` numbers."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_data_in_leaf,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.lambda_l2,
            "metric": "none",
            "seed": seed,
            "num_threads": count_threads(values),
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class GraphRows:
    """The table rows and runtimes of a labelled graph's distinct configurations."""

    features: np.ndarray  # (rows, columns) float32: rows of the feature table
    runtimes: np.ndarray  # (rows,): mean runtime of each configuration
    collection: str


@dataclass(frozen=True)
class TrainingTable:
    """The training rows of all graphs, concatenated."""

    features: np.ndarray  # (rows, columns) float32: rows of the feature table
    labels: np.ndarray  # (rows,): each row's label, which the trees learn to predict
    sizes: list[int]  # rows of each group; a ranking loss compares only rows of the same group


class BoostedTrees(Ranker):
    """A ranker with one LightGBM model. A subclass defines the rows of its tables, and how the
    trees' output becomes scores. In layout collections a score depends on the configurations scored
    together, because the feature table counts how frequent layouts are among them."""

    grouped: ClassVar[bool] = False  # True if the loss compares rows of a group (LambdaRank)

    def __init__(self, settings: Any, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.booster_: lightgbm.Booster | None = None

    @abstractmethod
    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        """Return the training table: rows of all graphs with labels, divided into groups."""

    @abstractmethod
    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        """Return scores (rows,) of one graph's configurations; lower is faster. `output`: the
        trees' output for the rows that `questions` returned. `rows`: number of configurations."""

    @abstractmethod
    def questions(self, features: np.ndarray) -> np.ndarray:
        """Return the rows to give to the trees in prediction and validation, made from a graph's
        feature table `features` (rows, columns)."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        settings = self.settings
        limit = share_rows(settings.max_configs, settings.max_rows, len(graphs))
        train = self.make_table([self._rows(graph, limit) for graph in graphs])
        dataset = self.make_dataset(train)
        callbacks = [_reporter(report, settings.rounds)]
        valid_sets, metric = [], None
        if len(validation):
            limit = share_rows(settings.max_configs, settings.max_rows, len(validation))
            held_out = [self._rows(graph, limit) for graph in validation]
            questions = [self.questions(graph.features) for graph in held_out]
            sizes = [len(part) for part in questions]
            table = TrainingTable(np.concatenate(questions), np.zeros(sum(sizes)), sizes)
            valid_sets = [self.make_dataset(table, dataset)]
            callbacks.insert(0, lightgbm.early_stopping(settings.patience, verbose=False))
            metric = self._make_metric(held_out, sizes)
        self.booster_ = lightgbm.train(
            settings.parameters(self.seed, train.features.size),
            dataset,
            num_boost_round=settings.rounds,
            valid_sets=valid_sets,
            valid_names=["validation"] if valid_sets else None,
            feval=metric,
            callbacks=callbacks,
        )
        return self

    def make_dataset(
        self, table: TrainingTable, reference: lightgbm.Dataset | None = None
    ) -> lightgbm.Dataset:
        """Return a LightGBM dataset; a validation set shares the bins of its `reference`."""
        group = table.sizes if self.grouped else None
        return lightgbm.Dataset(table.features, table.labels, group=group, reference=reference)

    def predict(self, graph: Graph) -> np.ndarray:
        scores = self.score_rows(self.rows_of(graph))
        return np.asarray(scores, np.float32)[graph.distinct.inverse]

    def rows_of(self, graph: Graph) -> np.ndarray:
        """Return the feature table (distinct configs, columns) float32 of a graph."""
        return distinct_rows(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """Return the description of each column of the table that rows_of returns."""
        return list_features(graph)

    def score_rows(self, features: np.ndarray) -> np.ndarray:
        """Return scores (rows,) of one graph's feature table (rows, columns); lower is faster."""
        return self.score(self.predict_rows(self.questions(features)), len(features))

    def predict_rows(self, rows: np.ndarray, **options: Any) -> np.ndarray:
        """Return the trees' output for rows (rows, columns); `options` are LightGBM's."""
        booster = self.fitted()
        return np.asarray(
            booster.predict(
                rows,
                num_iteration=booster.best_iteration,
                num_threads=count_threads(rows.size),
                **options,
            )
        )

    def fitted(self) -> lightgbm.Booster:
        """Return the trained LightGBM model; raise RuntimeError if the ranker is not fitted."""
        if self.booster_ is None:
            raise RuntimeError("fit the ranker before it predicts or is saved")
        return self.booster_

    def save(self, folder: Path) -> None:
        booster = self.fitted()
        text = booster.model_to_string(num_iteration=booster.best_iteration)
        # Not LightGBM's save_model, which does not notice full disks.
        (folder / MODEL).write_text(text, encoding="utf-8")

    def load(self, folder: Path) -> Self:
        self.booster_ = lightgbm.Booster(model_str=read_forest(folder / MODEL).text)
        return self

    def _rows(self, graph: Graph, limit: int) -> GraphRows:
        rows = choose_rows(graph, limit, self.seed)
        return GraphRows(self.rows_of(rows.graph), rows.runtimes, graph.collection.name)

    def _make_metric(self, graphs: Sequence[GraphRows], sizes: Sequence[int]) -> Any:
        borders = np.cumsum(sizes)[:-1]

        def metric(predicted: np.ndarray, dataset: lightgbm.Dataset) -> tuple[str, float, bool]:
            scores = [
                score_ranking(
                    graph.collection, self.score(part, len(graph.runtimes)), graph.runtimes
                )
                for graph, part in zip(graphs, np.split(predicted, borders), strict=True)
            ]
            return "score", float(np.mean(scores)), True

        return metric


def count_threads(values: int) -> int:
    """Return LightGBM's number of threads for a table of `values` numbers: 0 (all cores), or 1 for
    a small table, because threads that wait for each other are slow on a busy machine."""
    return 1 if values < SMALL_TABLE else 0


def _reporter(report: Report, rounds: int) -> Any:
    def callback(environment: Any) -> None:
        done, results = environment.iteration + 1, environment.evaluation_result_list
        if results:
            score = float(results[0][2])
            report(done, rounds, f"validation {score:.3f}", score)
        else:
            report(done, rounds)

    return callback
