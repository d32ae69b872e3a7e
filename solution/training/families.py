"""Find the families of programs: relatives at other depths, such as resnet_d6 and resnet_d8.

Relatives differ in structure, so folds by architecture divide them. A family is found

1. by the first word of a name that says something: `resnet` of `resnet_v1_50_batch_128`;
2. by structure: programs of one architecture are one family, whatever their names;
3. where a name says nothing (a hash, `fusion.191`, `program_3`), by the kinds of operations: it
   joins the programs with nearly the same kinds (ALIKE).

Every rule only ever joins families, so a fold by family holds out at least as much as one by
architecture.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# Words that precede a model's name, or replace it.
SAYS_NOTHING = frozenset({
    "added", "copy", "example", "fusion", "graph", "hlo", "jit", "main", "mlperf", "model",
    "module", "official", "program", "pure", "small", "test", "tf", "train", "valid", "xla",
})  # fmt: skip
HASH = re.compile(r"[0-9a-f]{12,}")
SHORTEST = 3  # fewest letters of a prefix that joins two words, such as gpt and gptneo
ALIKE = 0.9  # least Jaccard index (intersection over union) of the opcode sets of relatives
OPCODES = 256


def name_family(name: str) -> str:
    """Return the word of a graph's name that names its family; empty if there is none."""
    words = re.findall(r"[a-z]+", HASH.sub(" ", name.lower()))
    return next((word for word in words if len(word) > 1 and word not in SAYS_NOTHING), "")


def find_families(
    names: Sequence[str],
    architectures: Sequence[str],
    read_opcodes: Callable[[int], np.ndarray],
) -> list[str]:
    """Return the family of each graph, named by the shortest word in it or by an architecture.

    Args:
        names, architectures: of the graphs, in the same order.
        read_opcodes: the opcodes (nodes,) uint8 of the graph at a position; called only if a name
            says nothing, and once for each architecture.
    """
    words = [name_family(name) for name in names]
    joined = [*_join_equal(architectures), *_join_words(words)]
    if "" in words:
        joined += _join_alike(words, architectures, read_opcodes)
    first, second = np.array(joined, np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(first)), (first, second)), shape=(len(words), len(words)))
    _, component = connected_components(links, directed=False)
    # Words before architectures, then the shortest, then by the alphabet.
    ranked = sorted(
        (not word, len(word or architecture), word or architecture, number)
        for word, architecture, number in zip(words, architectures, component.tolist(), strict=True)
    )
    titles = {number: title for _, _, title, number in reversed(ranked)}
    return [titles[number] for number in component]


def _join_equal(values: Sequence[str]) -> list[tuple[int, int]]:
    """Join each position with the first one that has the same value; empty values join nothing."""
    first: dict[str, int] = {}
    return [(first.setdefault(value, row), row) for row, value in enumerate(values) if value]


def _join_words(words: Sequence[str]) -> list[tuple[int, int]]:
    """Join equal words, and words of which one is a prefix of the other."""
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
    words: Sequence[str],
    architectures: Sequence[str],
    read_opcodes: Callable[[int], np.ndarray],
) -> list[tuple[int, int]]:
    """Join graphs without a word with all graphs that have nearly the same kinds of operations."""
    first: dict[str, int] = {}
    for row, architecture in enumerate(architectures):
        first.setdefault(architecture, row)
    rows = np.array([*first.values()])
    has = np.zeros((len(rows), OPCODES), np.float32)  # architectures x opcodes
    for at, row in enumerate(rows):
        has[at, read_opcodes(int(row))] = 1
    sizes = has.sum(1)
    joined: list[tuple[int, int]] = []
    nameless = {architectures[row] for row, word in enumerate(words) if not word}
    for number in np.flatnonzero([architecture in nameless for architecture in first]):
        # Join the architectures with |A and B| >= ALIKE * |A or B|.
        shared = has @ has[number]
        alike = np.flatnonzero(shared >= ALIKE * (sizes + sizes[number] - shared))
        joined += [(int(rows[number]), int(rows[other])) for other in alike]
    return joined
