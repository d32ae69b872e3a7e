"""Find families of programs. A family has the variants of one model: resnet_d6 and resnet_d8.

Variants of different depths differ in structure (opcodes and edges), so folds by architecture would
separate them. A family is found

1. by the first word of a name that is not generic: `resnet` of `resnet_v1_50_batch_128`;
2. by structure: programs of one architecture are one family, whatever their names;
3. by operations, if a name has only generic words (a hash, `fusion.191`, `program_3`): the program
   joins the programs with nearly the same set of opcodes (ALIKE).

A rule can only join families, never split them. So a fold by family holds out at least as much as
one by architecture.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# Generic words, which precede a model's name or replace it.
SAYS_NOTHING = frozenset({
    "added", "copy", "example", "fusion", "graph", "hlo", "jit", "main", "mlperf", "model",
    "module", "official", "program", "pure", "small", "test", "tf", "train", "valid", "xla",
})  # fmt: skip
HASH = re.compile(r"[0-9a-f]{12,}")
SHORTEST = 3  # minimum number of letters of a prefix that joins two words, such as gpt and gptneo
ALIKE = 0.9  # minimum Jaccard index (intersection over union) of the opcode sets of relatives
OPCODES = 256  # upper bound on opcodes, which are uint8


def name_family(name: str) -> str:
    """Return the word of a graph's name that names its family; empty if there is none."""
    words = re.findall(r"[a-z]+", HASH.sub(" ", name.lower()))
    return next((word for word in words if len(word) > 1 and word not in SAYS_NOTHING), "")


def find_families(
    names: Sequence[str], architectures: Sequence[str], read_opcodes: Callable[[int], np.ndarray]
) -> list[str]:
    """Return the family of each graph: the shortest word in the names of the family's graphs, or an
    architecture if no name has a word. `read_opcodes` returns the opcodes of the graph at a
    position; it is called for one graph per architecture, and only if a name has no word."""
    words = [name_family(name) for name in names]
    joined = [*_join_equal(architectures), *_join_words(words)]
    if "" in words:
        joined += _join_alike(words, architectures, read_opcodes)
    first, second = np.array(joined, np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(first)), (first, second)), shape=(len(words), len(words)))
    _, component = connected_components(links, directed=False)
    # sort possible names of families: words before architectures, short before long, then by letter
    ranked = sorted(
        (not word, len(word or architecture), word or architecture, number)
        for word, architecture, number in zip(words, architectures, component.tolist(), strict=True)
    )
    titles = {number: title for _, _, title, number in reversed(ranked)}
    return [titles[number] for number in component]


def _join_equal(values: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of positions to join: (first position with the same value, position). Empty
    values are skipped."""
    first: dict[str, int] = {}
    return [(first.setdefault(value, row), row) for row, value in enumerate(values) if value]


def _join_words(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of positions to join: their words are equal, or one is a prefix of the other."""
    joined = _join_equal(words)
    first = {word: row for row, word in reversed([*enumerate(words)]) if len(word) >= SHORTEST}
    # In alphabetical order, words directly follow their prefixes.
    begun: list[str] = []
    for word in sorted(first):
        while begun and not word.startswith(begun[-1]):
            begun.pop()
        if begun:
            joined.append((first[begun[-1]], first[word]))
        begun.append(word)
    return joined


def _join_alike(
    words: Sequence[str], architectures: Sequence[str], read_opcodes: Callable[[int], np.ndarray]
) -> list[tuple[int, int]]:
    """Return pairs of positions to join: a graph without a word in its name, and each graph with
    nearly the same opcodes (ALIKE). Only the first graph of each architecture is compared."""
    first: dict[str, int] = {}
    for row, architecture in enumerate(architectures):
        first.setdefault(architecture, row)
    rows = np.array([*first.values()])
    # (architectures, opcodes): 1 if the programs with this architecture contain the opcode
    has = np.zeros((len(rows), OPCODES), np.float32)
    for at, row in enumerate(rows):
        has[at, read_opcodes(int(row))] = 1
    sizes = has.sum(1)
    joined: list[tuple[int, int]] = []
    nameless = {architectures[row] for row, word in enumerate(words) if not word}
    for number in np.flatnonzero([architecture in nameless for architecture in first]):
        # join architectures with |A and B| >= ALIKE * |A or B| for their sets of opcodes A, B
        shared = has @ has[number]
        alike = np.flatnonzero(shared >= ALIKE * (sizes + sizes[number] - shared))
        joined += [(int(rows[number]), int(rows[other])) for other in alike]
    return joined
