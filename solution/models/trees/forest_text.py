"""Read LightGBM's text format strictly, because LightGBM's reader may crash on damaged text.

The file may come from anywhere. Every line of a tree is compared with what it must be, and the tree
with what a tree is; only checked numbers reach LightGBM. Everything else in the file is dropped
(training parameters, importances, unknown sections).
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solution.system.errors import InputError
from solution.system.files import open_regular

MAX_BYTES = 1 << 28  # of a model's text; ours have a few hundred thousand
END = "end of trees"
OBJECTIVE = re.compile(r"[a-z_]{1,40}( sigmoid:[0-9.]{1,10})?")
NUMBERS = re.compile(r"[-+0-9.e ]*")
# The lines of a tree in order, with the type of their numbers: one per split, one per leaf.
OF_SPLITS = {
    "split_feature": np.int64,
    "split_gain": np.float64,
    "threshold": np.float64,
    "decision_type": np.int64,
    "left_child": np.int64,
    "right_child": np.int64,
}
OF_LEAVES = {"leaf_value": np.float64, "leaf_weight": np.float64, "leaf_count": np.int64}
INTERNAL = {
    "internal_value": np.float64,
    "internal_weight": np.float64,
    "internal_count": np.int64,
}
TREE = ("num_leaves", "num_cat", *OF_SPLITS, *OF_LEAVES, *INTERNAL, "is_linear", "shrinkage")
OF_A_SPLIT = OF_SPLITS | INTERNAL
DEFAULT_LEFT, MISSING_NAN = 2, 8  # bits of decision_type; bit 1 marks a categorical split


@dataclass(frozen=True)
class Tree:
    """A tree of comparisons; a negative child ~leaf is a leaf."""

    feature: np.ndarray  # (splits,) int64
    threshold: np.ndarray  # (splits,) float64: a row with at most this value goes left
    left: np.ndarray  # (splits,) int64
    right: np.ndarray  # (splits,) int64
    value: np.ndarray  # (splits + 1,) float64


@dataclass(frozen=True)
class ForestText:
    """The text of a model that LightGBM can read safely."""

    text: str
    columns: int  # columns of the rows to predict
    trees: tuple[Tree, ...]


class _TextError(ValueError):
    """The text is not LightGBM's."""


def read_forest(path: Path) -> ForestText:
    """Read and check the trees in LightGBM's text.

    Raises InputError if there is no such file, or if it holds anything but LightGBM trees that
    compare one column in each split.
    """
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
    """Return the trees in the text; raise ValueError if it is not LightGBM's."""
    body, _, rest = text.partition(f"\n{END}\n")
    if not rest:
        raise _TextError(f"a line {END!r} is missing")
    head, *blocks = re.split(r"\n\n+(?=Tree=)", body.rstrip("\n"))
    columns, objective = _check_head(head)
    parsed = [_parse_tree(block, place, columns) for place, block in enumerate(blocks)]
    if not parsed:
        raise _TextError("it has no tree")
    lines = [
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0",
        f"max_feature_idx={columns - 1}\nobjective={objective}",
        f"feature_names={' '.join(f'Column_{place}' for place in range(columns))}",
        f"feature_infos={' '.join(['none'] * columns)}\n",
        *(f"{lines}\n\n" for lines, _ in parsed),
        f"{END}\n\npandas_categorical:null\n",
    ]
    return ForestText("\n".join(lines), columns, tuple(tree for _, tree in parsed))


def _check_head(head: str) -> tuple[int, str]:
    """Return the number of columns and the objective, which transforms the sum of the leaves."""
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


def _parse_tree(block: str, place: int, columns: int) -> tuple[str, Tree]:
    """Return the checked lines of a tree, and the tree."""
    first, *lines = block.split("\n")
    pairs = [line.partition("=") for line in lines]
    if first != f"Tree={place}" or tuple(name for name, _, _ in pairs) != TREE:
        raise _TextError(f"tree {place} has other lines")
    values = {name: value for name, _, value in pairs}
    for name, value in values.items():
        if not NUMBERS.fullmatch(value):
            raise _TextError(f"{name} of tree {place} is {_show(value)}")
    if (values["num_cat"], values["is_linear"]) != ("0", "0"):
        raise _TextError(f"tree {place} has categories or linear leaves")
    leaves = int(values["num_leaves"])
    lengths = dict.fromkeys(OF_A_SPLIT, leaves - 1) | dict.fromkeys(OF_LEAVES, leaves)
    if leaves == 1 and not values["leaf_weight"]:  # a tree without a split omits it
        lengths["leaf_weight"] = 0
    arrays = {
        name: _numbers(values[name], kind, name, lengths[name])
        for name, kind in {**OF_A_SPLIT, **OF_LEAVES}.items()
    }
    _numbers(values["shrinkage"], np.float64, "shrinkage", 1)
    tree = Tree(*(arrays[name] for name in ("split_feature", "threshold", "left_child",
                                            "right_child", "leaf_value")))  # fmt: skip
    _check_tree(tree, arrays["decision_type"], place, columns)
    return block, tree


def _numbers(text: str, kind: type, name: str, length: int) -> np.ndarray:
    found: np.ndarray = np.array(text.split(), kind)
    if len(found) != length or not np.isfinite(found).all():
        raise _TextError(f"{name} has {len(found)} finite numbers, expected {length}")
    return found


def _check_tree(tree: Tree, decisions: np.ndarray, place: int, columns: int) -> None:
    """Check that every node is reached exactly once from the root and compares an existing
    column."""
    splits = len(tree.feature)
    children = np.concatenate([tree.left, tree.right])
    nodes, leaves = np.arange(1, splits), ~np.arange(splits + bool(splits))
    later = children[children >= 0] > np.tile(np.arange(splits), 2)[children >= 0]
    if sorted(children) != sorted([*nodes, *leaves]) or not later.all():
        raise _TextError(f"the nodes of tree {place} form no tree")
    if ((tree.feature < 0) | (tree.feature >= columns)).any():
        raise _TextError(f"tree {place} asks for other columns than 0 to {columns - 1}")
    if (decisions & ~(DEFAULT_LEFT | MISSING_NAN)).any():
        raise _TextError(f"tree {place} decides by other rules than up to a threshold")


def _show(value: object) -> str:
    return repr(value)[:60]
