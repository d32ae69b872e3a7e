"""Define Graph: a tensor program with its candidate configurations, validated and immutable.

Everything that is computed from the files is computed from a Graph, so later code relies on the
checks here. Runtimes are measured by a clock or estimated by a compiler; the source of an estimate
names the target machine and the compiler. Results of a PerGraph, a function of a graph, are cached
for as long as the graph lives, within a memory budget.
"""

import dataclasses
import hashlib
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook import Codebook, Distinct, deduplicate
from solution.domain.collection import Collection
from solution.domain.vocabulary import MAX_RANK
from solution.system.wording import join_names

TIMED = ""  # source of labels that a clock measured; also assumed if a file names no source
ESTIMATED = "estimated: "  # beginning of a source of labels that a compiler estimated
MAX_LENGTH = 200  # maximum number of characters of a source of labels
PATTERN = re.compile(re.escape(ESTIMATED) + r"[ -~]*[!-~]")  # an estimate's source: printable ASCII
MAX_SHOWN = 5
LARGEST = 2.0**63  # bound on node features, which were 64-bit integers before they were float32

MOST_DIMENSIONS = 1024  # upper bound on the dimensions of a tensor
ROUNDING = 1e-6  # bound on the relative error of a sum or product of sizes in float32

Checks = list[tuple[str, np.ndarray]]  # (text about a defect, the rows or values with this defect)
T = TypeVar("T")


class InvalidGraphError(ValueError):
    """Raised if arrays do not form a graph; `defects` lists the reasons."""

    def __init__(self, defects: list[str]) -> None:
        super().__init__("; ".join(defects))
        self.defects = defects


@dataclass(frozen=True, eq=False)
class Graph:
    """A tensor program, its candidate configurations and, where they are known, their runtimes.
    Arrays are read-only. Raises InvalidGraphError when they do not fit each other."""

    name: str
    collection: Collection
    node_features: np.ndarray  # (nodes, 140) float32, columns as in solution.domain.vocabulary
    node_opcodes: np.ndarray  # (nodes,) uint8: ids of solution.domain.vocabulary
    edges: np.ndarray  # (edges, 2) int64; a row is [consumer, producer]
    configurable: np.ndarray  # (configurable nodes,) int64 node ids; none for tile
    configs: Codebook | np.ndarray  # for layout a codebook, for tile (configs, 24) float32
    # (configs,) float64: nanoseconds, for tile divided by the file's normalizer; None: no labels
    runtimes: np.ndarray | None
    # (configs, options) int8: the choice of each compile option; None: no options were set
    options: np.ndarray | None = None
    # names of the compile options: the keys of one target's options in OPTION_SETS
    option_names: tuple[str, ...] = vocabulary.OPTION_NAMES
    # (configs,) bool: True for the reference batch, which all others are compared with; None: all
    listed: np.ndarray | None = None
    # (nodes, 2, SUMMED) int8: for each of a dot's two operands, the dimensions that are contracted,
    # padded with -1; None: unknown
    summed: np.ndarray | None = None
    label_source: str = TIMED  # source of the runtimes: TIMED, or the text of name_estimate

    def __post_init__(self) -> None:
        if defects := _find_shape_defects(self) or _find_value_defects(self):
            raise InvalidGraphError(defects)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        labels = "" if self.runtimes is None else ", with runtimes"
        return (
            f"Graph({self.collection.name}:{self.name}, {self.num_nodes:,} nodes, "
            f"{len(self.configurable):,} settable, {self.num_configs:,} configurations{labels})"
        )

    @property
    def num_nodes(self) -> int:
        return len(self.node_features)

    @property
    def num_configs(self) -> int:
        return self.configs.shape[0]

    @property
    def layouts(self) -> Codebook:
        """The configurations of a layout graph."""
        assert isinstance(self.configs, Codebook)
        return self.configs

    @property
    def tiles(self) -> np.ndarray:
        """The configurations (configs, 24) of a tile graph."""
        assert isinstance(self.configs, np.ndarray)
        return self.configs

    @property
    def option_choices(self) -> dict[str, tuple[str, ...]]:
        """The compile options of the graph's target: {name: choices}."""
        sets = vocabulary.OPTION_SETS.values()
        return next(choices for choices in sets if (*choices,) == self.option_names)

    @cached_property
    def distinct(self) -> Distinct:
        """The distinct configurations; cached, because finding them hashes all configurations."""
        if isinstance(self.configs, Codebook):
            if self.options is None:
                return self.configs.distinct
            return deduplicate(np.column_stack([self.configs.rows, self.options]))
        return deduplicate(self.configs)

    @property
    def listed_distinct(self) -> np.ndarray:
        """Mask (distinct,): True for distinct configurations in the reference batch."""
        if self.listed is None:
            return np.ones(len(self.distinct.first), bool)
        return np.bincount(self.distinct.inverse, self.listed, len(self.distinct.first)) > 0

    @property
    def key(self) -> tuple[str, str]:
        """The collection and graph name, which identify a graph."""
        return self.collection.name, self.name

    @property
    def architecture(self) -> str:
        """A hash of opcodes and edges; it is equal for graphs of one program at several sizes."""
        digest = hashlib.sha256(np.ascontiguousarray(self.node_opcodes, np.uint8).tobytes())
        digest.update(np.ascontiguousarray(self.edges, np.int64).tobytes())
        return digest.hexdigest()[:16]

    @property
    def nbytes(self) -> int:
        """The bytes in memory of the graph's arrays; memory-mapped arrays do not count."""
        arrays = [getattr(self, field.name) for field in dataclasses.fields(self)]
        if isinstance(self.configs, Codebook):
            arrays += self.configs.arrays().values()
        return sum(
            array.nbytes
            for array in arrays
            if isinstance(array, np.ndarray) and not isinstance(array.base, np.memmap)
        )

    def select(self, configs: np.ndarray) -> "Graph":
        """Return the program with only the configurations at the positions `configs` (k,)."""
        runtimes = None if self.runtimes is None else self.runtimes[configs]
        options = None if self.options is None else self.options[configs]
        listed = None if self.listed is None else self.listed[configs]
        given = self.configs
        chosen = given.select(configs) if isinstance(given, Codebook) else given[configs]
        return dataclasses.replace(
            self, configs=chosen, runtimes=runtimes, options=options, listed=listed
        )


def _find_shape_defects(graph: Graph) -> list[str]:
    nodes, configs, configurable = (
        array.shape[0] if array.shape else 0
        for array in (graph.node_features, graph.configs, graph.configurable)
    )
    is_layout = graph.collection.kind == "layout"
    expected: list[tuple[str, np.ndarray | Codebook | None, tuple[int | None, ...]]] = [
        ("node_feat", graph.node_features, (None, vocabulary.NUM_NODE_FEATURES)),
        ("node_opcode", graph.node_opcodes, (nodes,)),
        ("edge_index", graph.edges, (None, 2)),
        ("node_config_ids", graph.configurable, (None if is_layout else 0,)),
        ("node_config_feat", graph.configs, (None, configurable, vocabulary.NUM_LAYOUT_FEATURES))
        if is_layout
        else ("config_feat", graph.configs, (None, vocabulary.NUM_TILE_FEATURES)),
        ("config_runtime", graph.runtimes, (configs,)),
        ("dimensions that dots contract", graph.summed, (nodes, 2, vocabulary.SUMMED)),
        ("the reference batch", graph.listed, (configs,)),
        ("config_options", graph.options, (configs, len(graph.option_names))),
    ]
    defects = [
        f"{name} has shape {show_shape(array.shape)}, expected {show_shape(shape)}"
        for name, array, shape in expected
        if array is not None and not matches(array.shape, shape)
    ]
    if not defects and graph.listed is not None and not graph.listed.any():
        defects.append("the reference batch has no configuration")
    if graph.option_names not in [(*names,) for names in vocabulary.OPTION_SETS.values()]:
        defects.append(f"its options, {join_names(graph.option_names)}, are those of no target")
    if not is_source(graph.label_source):
        defects.append(
            f"the source of its labels is {graph.label_source[:MAX_LENGTH]!r}, expected nothing, "
            "or `estimated: TARGET, COMPILER`"
        )
    if not defects and (nodes == 0 or configs == 0):
        defects.append(f"the graph has {nodes} nodes and {configs} configurations")
    return defects


def matches(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Tell if a shape matches the `expected` one, in which None allows any size."""
    pairs = zip(expected, shape, strict=False)
    return len(shape) == len(expected) and all(want in (None, have) for want, have in pairs)


def _find_value_defects(graph: Graph) -> list[str]:
    nodes, opcodes = graph.num_nodes, graph.node_opcodes
    checks = [
        *_check_features(graph),
        (f"node_opcode has ids outside 0...{vocabulary.VIRTUAL}:",
         np.unique(opcodes[(opcodes < 0) | (opcodes > vocabulary.VIRTUAL)])),
        (f"edge_index points outside the nodes 0...{nodes - 1} in the rows",
         _rows_of((graph.edges < 0) | (graph.edges >= nodes))),
        (f"node_config_ids points outside the nodes 0...{nodes - 1}:",
         graph.configurable[(graph.configurable < 0) | (graph.configurable >= nodes)]),
        ("node_config_ids names these nodes more than once:", _repeated(graph.configurable)),
        ("the configurations have NaN or infinite values in the rows", _rows_not_finite(graph)),
        ("config_options has choices that are not known in the rows", _unknown_options(graph)),
        *_check_runtimes(graph),
    ]  # fmt: skip
    return [
        f"{text} {join_names(found.tolist(), MAX_SHOWN)}" for text, found in checks if len(found)
    ]


def _check_features(graph: Graph) -> Checks:
    """Check that the node features are finite, that the product of a shape's sizes fits into 64
    bits, and that dimension numbers can be used as indices."""
    features = graph.node_features
    if not (features.min() >= -LARGEST and features.max() <= LARGEST):  # also true for NaN
        finite = np.isfinite(features)
        return [
            ("node_feat has NaN or infinite values in the nodes", _rows_of(~finite)),
            ("node_feat has numbers beyond 64 bits in the nodes",
             _rows_of(finite & (np.abs(features) > LARGEST))),
        ]  # fmt: skip
    sizes = features[:, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    elements = np.prod(np.where(sizes == 0, 1, sizes).T, axis=0)
    wrong = _rows_of(sizes < 0) if sizes.min() < 0 else np.flatnonzero(elements >= LARGEST)
    return [
        ("node_feat has a shape with a size below 0, or of 2^63 elements, in the nodes", wrong),
        (f"node_feat has dimension numbers other than -1...{MAX_RANK - 1} in the nodes",
         _wrong_dimension_numbers(graph)),
    ]  # fmt: skip


def find_longer(features: np.ndarray) -> np.ndarray:
    """Return a mask (nodes,): True for tensors with more dimensions than the six in the features.

    As in TpuGraphs, the features hold the first six numbers of each list. A tensor has more if all
    six sizes are set and the file's sum or product of all sizes exceeds theirs, or if its layout
    lists six dimensions of which one is not among the first six.
    """
    sizes = features[:, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    totals = features[:, [vocabulary.SHAPE_SUM, vocabulary.SHAPE_PRODUCT]]
    of_six = np.stack([sizes.sum(axis=1), sizes.prod(axis=1)], axis=1).astype(np.float32)
    is_cut = (sizes > 0).all(axis=1) & (totals > of_six * (1 + ROUNDING)).any(axis=1)
    listed = np.sort(features[:, vocabulary.NODE_LAYOUT], axis=1)
    is_order = (listed[:, 1:] > listed[:, :-1]).all(axis=1) & (listed[:, 0] >= 0)
    return np.asarray(is_cut | (is_order & (listed[:, -1] >= MAX_RANK)))


def _wrong_dimension_numbers(graph: Graph) -> np.ndarray:
    """Return the nodes (k,) with a dimension number that is out of range or not whole. A virtual
    node has means of dimension numbers, which need not be whole. A node that computes or reads a
    tensor of more than six dimensions may name the later dimensions."""
    is_wrong = np.zeros(graph.num_nodes, bool)
    for columns in vocabulary.DIMENSION_NUMBERS:
        numbers = graph.node_features[:, columns]
        broken = numbers != np.rint(numbers)
        if broken.any():
            is_wrong |= broken.any(axis=1) & (graph.node_opcodes != vocabulary.VIRTUAL)
        if numbers.min() < -1 or numbers.max() >= MAX_RANK:
            is_wrong |= ((numbers < -1) | (numbers >= MOST_DIMENSIONS)).any(axis=1)
            is_longer = find_longer(graph.node_features)
            consumers, producers = graph.edges[(graph.edges < graph.num_nodes).all(axis=1)].T
            may_name = is_longer.copy()
            may_name[consumers[is_longer[producers]]] = True
            is_wrong |= (numbers >= MAX_RANK).any(axis=1) & ~may_name
    return np.flatnonzero(is_wrong)


def _rows_of(marks: np.ndarray) -> np.ndarray:
    """Return the numbers (k,) of the rows of `marks` (rows, columns) that contain a True."""
    return np.flatnonzero(marks.any(axis=1)) if marks.any() else np.empty(0, np.int64)


def _check_runtimes(graph: Graph) -> Checks:
    """Check that runtimes are positive, and that quotients of two runtimes are finite."""
    if graph.runtimes is None:
        return []
    bad = np.flatnonzero(~(np.isfinite(graph.runtimes) & (graph.runtimes > 0)))
    checks = [("config_runtime is not positive for the configurations", bad)]
    ends = np.array([graph.runtimes.min(), graph.runtimes.max()])
    with np.errstate(over="ignore"):
        if not len(bad) and np.isinf(ends[1] / ends[0]):
            checks.append(("config_runtime has times whose quotient is no number:", ends))
    return checks


def _rows_not_finite(graph: Graph) -> np.ndarray:
    if isinstance(graph.configs, Codebook):  # they were checked when it was made
        return np.empty(0, np.int64)
    return _rows_of(~np.isfinite(graph.configs))


def _unknown_options(graph: Graph) -> np.ndarray:
    if graph.options is None:
        return np.empty(0, np.int64)
    counts = np.array([len(choices) for choices in graph.option_choices.values()])
    return np.flatnonzero(((graph.options < 0) | (graph.options >= counts)).any(axis=1))


def _repeated(values: np.ndarray) -> np.ndarray:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts > 1]


def show_shape(shape: tuple[int | None, ...]) -> str:
    """Return a shape as text for messages; None is any size."""
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"


def name_estimate(target: str, compiler: str) -> str:
    """Return the source of a compiler's estimates, such as "estimated: tpu:v3, libtpu 0.0.42.1"."""
    return f"{ESTIMATED}{target}, {compiler}"


def has_estimates_for(sources: Iterable[str], target: str) -> bool:
    """Return True if one of the sources is a compiler's estimate (name_estimate) for the target."""
    return any(source.startswith(f"{ESTIMATED}{target},") for source in sources)


def is_source(text: str) -> bool:
    """Tell if the text is a valid source: TIMED, or the source of an estimate."""
    return text == TIMED or (len(text) <= MAX_LENGTH and PATTERN.fullmatch(text) is not None)


def show_source(source: str) -> str:
    """Return the source as messages show it; "timed" if it is empty."""
    return source or "timed"


def list_estimates(sources: Iterable[str]) -> list[str]:
    """Return the distinct sources of estimates, sorted."""
    return sorted({source for source in sources if source != TIMED})


def warn_of_estimates(sources: Iterable[str]) -> str:
    """Return a sentence that says which labels are estimates; empty if all are timed."""
    found = set(sources)
    estimates = [source.removeprefix(ESTIMATED) for source in list_estimates(found)]
    if not estimates:
        return ""
    some = "Some labels" if TIMED in found else "Labels"
    return f"{some} are a compiler's estimates ({join_names(estimates)}), not measured times."


class Budget:
    """A counter of the bytes that caches may still use."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Reserve `count` bytes; return False if the budget does not allow it."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._left += count


@contextmanager
def naming(graph: Graph) -> Iterator[None]:
    """Add the graph's name, as a note, to any error raised in the block."""
    try:
        yield
    except Exception as error:
        note = f"It happened with the graph {':'.join(graph.key)}."
        if note not in getattr(error, "__notes__", ()):  # nested calls add the note once
            error.add_note(note)
        raise


class PerGraph(Generic[T]):
    """A function of a graph. It caches the result for a graph for as long as the graph lives, if
    the budget allows it. Folds and seeds share their graphs, so results that depend on the graph
    alone are computed once. If the function raises an error, the error names the graph."""

    budget = Budget(1 << 30)  # one budget for the caches of all PerGraph functions

    def __init__(self, function: Callable[[Graph], T]) -> None:
        self._function = function
        self._results: weakref.WeakKeyDictionary[Graph, T] = weakref.WeakKeyDictionary()

    def __call__(self, graph: Graph) -> T:
        if graph in self._results:
            return self._results[graph]
        with naming(graph):
            result = self._function(graph)
        size = count_bytes(result)
        if self.budget.take(size):
            self._results[graph] = result
            weakref.finalize(graph, self.budget.give_back, size)
        return result


def count_bytes(value: Any) -> int:
    """Return the bytes in memory of an array or tensor, or of everything in a container. A
    container is a dataclass, list, tuple or dictionary. A memory-mapped array counts as 0."""
    if dataclasses.is_dataclass(value):
        return sum(count_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, (list, tuple)):
        return sys.getsizeof(value) + sum(count_bytes(part) for part in value)
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(count_bytes(part) for part in value.values())
    if isinstance(getattr(value, "base", None), np.memmap):
        return 0
    return int(value.nbytes) if hasattr(value, "nbytes") else sys.getsizeof(value)
