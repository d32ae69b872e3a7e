"""Make synthetic programs of any size in the competition's format, for tests at its full scale.

Opcodes, shapes and layouts are drawn so that files are about as large, as repetitive and as
compressible as the real ones. The runtimes follow made-up rules with some noise, the same in all
programs, so that they can be learned; they say nothing about a TPU.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path

import numpy as np

from solution.domain.vocabulary import (
    MAX_RANK,
    NODE_LAYOUT,
    NUM_LAYOUT_FEATURES,
    NUM_NODE_FEATURES,
    NUM_TILE_FEATURES,
    OPCODE_IDS,
    SHAPE_DIMENSIONS,
    SHAPE_PRODUCT,
    SHAPE_SUM,
)
from tests.made.graphs import F32

BLOCK_ROWS = 2000
CONFIGURABLE = {"reshape": 66_003, "dot": 98_954, "convolution": 20_900}  # counts in TpuGraphs
OTHERS = ("parameter", "constant", "add", "multiply", "broadcast", "reduce", "transpose", "maximum")
RANKS = {"reshape": 3, "dot": 3, "convolution": 4}
# Real nodes have few layouts: two orders of a tensor, and the compiler's choice. In twelve
# real files convolutions have 4 or 8, dots 8 or 9, reshapes 2 or 3.
LAYOUTS = {"reshape": 3, "dot": 9, "convolution": 8}
ORDERS = 2  # number per tensor
# A random configuration sets all of a program's layouts; those of a search leave half unset.
RANDOM, NEAR = 1.0, 0.5
TENSOR_COSTS = (1.0, 0.5, 0.25)  # of an output, an input, a kernel that is not row-major
OWN_COSTS = 0.3  # maximum of a random cost per choice, which no rule explains
# log2 of each size; cost of each step away from it
BEST_TILE, TILE_COSTS = 4, np.array([0.2, 0.1, 0.05, 0.02])


@dataclass(frozen=True)
class Program:
    """A graph without configurations."""

    features: np.ndarray  # (nodes, 140) float32
    opcodes: np.ndarray  # (nodes,) uint8
    edges: np.ndarray  # (edges, 2) int64, sorted by producer
    configurable: np.ndarray  # (configurable,) int64


@dataclass(frozen=True)
class Candidates:
    """The possible layouts of each configurable node, the compiler's choice first."""

    layouts: list[np.ndarray]  # (choices, 18) int8 each
    costs: list[np.ndarray]  # (choices,) each


def make_program(
    seed: int, nodes: int, edges: int, configurable: int, *, isolated: int = 0
) -> Program:
    """Return a program with exactly these numbers of nodes, edges, configurable and isolated
    nodes."""
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(nodes, configurable, replace=False))
    names = generator.choice(np.array(OTHERS, object), nodes)
    shares = np.array(list(CONFIGURABLE.values())) / sum(CONFIGURABLE.values())
    names[chosen] = generator.choice(np.array(list(CONFIGURABLE), object), configurable, p=shares)
    linked = np.setdiff1d(np.arange(nodes), generator.choice(nodes, isolated, replace=False))
    sizes = generator.choice([1, 8, 16, 64, 128, 256, 1024], (nodes, 4))
    ranks = np.array([RANKS.get(name, 2) for name in names])
    return Program(
        _describe_nodes(sizes, ranks),
        np.array([OPCODE_IDS[name] for name in names], np.uint8),
        _draw_edges(generator, linked, edges),
        chosen,
    )


def _describe_nodes(sizes: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return features (nodes, 140) of row-major float32 tensors of these sizes (nodes, 4)."""
    features = np.zeros((len(sizes), NUM_NODE_FEATURES), np.float32)
    slots = np.arange(sizes.shape[1])
    used = slots < ranks[:, None]
    features[:, F32] = 1
    features[:, SHAPE_DIMENSIONS][:, slots] = sizes * used
    features[:, SHAPE_SUM] = (sizes * used).sum(axis=1)
    features[:, SHAPE_PRODUCT] = np.where(used, sizes, 1).prod(axis=1)
    features[:, NODE_LAYOUT][:, slots] = np.where(used, ranks[:, None] - 1 - slots, 0)
    return features


def _draw_edges(generator: np.random.Generator, nodes: np.ndarray, count: int) -> np.ndarray:
    """Draw edges: mostly a chain, with short skips; a consumer has a higher number than its
    producer."""
    if len(nodes) < 2:
        return np.empty((0, 2), np.int64)
    chain = np.stack([nodes[1:], nodes[:-1]], axis=1)[:count]
    consumer = generator.integers(1, len(nodes), count - len(chain))
    back = 1 + generator.geometric(0.05, len(consumer))
    more = np.stack([nodes[consumer], nodes[np.maximum(consumer - back, 0)]], axis=1)
    edges = np.concatenate([chain, more])
    return edges[np.lexsort((edges[:, 0], edges[:, 1]))]


def draw_candidates(seed: int, program: Program) -> Candidates:
    """Draw the choices of every configurable node; their costs grow with its tensor."""
    generator = np.random.default_rng(seed)
    own = program.configurable
    work = np.sqrt(program.features[own, SHAPE_PRODUCT])
    layouts, costs = [], []
    for opcode, share in zip(program.opcodes[own], work / work.mean(), strict=True):
        name = next(name for name in CONFIGURABLE if OPCODE_IDS[name] == opcode)
        layouts.append(_choices(generator, name))
        costs.append(share * _weigh(generator, layouts[-1], RANKS[name]))
    return Candidates(layouts, costs)


def _weigh(generator: np.random.Generator, choices: np.ndarray, rank: int) -> np.ndarray:
    """Return the cost of layouts (choices, 18): higher if the last dimension is not contiguous."""
    minor = choices[:, [tensor * MAX_RANK for tensor in range(len(TENSOR_COSTS))]]
    ruled = ((minor >= 0) & (minor != rank - 1)) @ np.array(TENSOR_COSTS)
    return np.asarray(ruled + OWN_COSTS * generator.random(len(choices)))


def _choices(generator: np.random.Generator, name: str) -> np.ndarray:
    """Draw an opcode's layouts (choices, 18): first none, then different ones.

    Each takes one of two orders for each tensor. For a convolution only the two minor dimensions
    are set, for a reshape whole orders.
    """
    length = 2 if name == "convolution" else RANKS[name]
    orders = np.array(list(permutations(range(RANKS[name]), length)), np.int8)
    tensors = 2 if name == "reshape" else 3
    picked = np.array(list(product(range(ORDERS), repeat=tensors)))
    picked = generator.permutation(picked)[: LAYOUTS[name] - 1]
    choices = np.full((1 + len(picked), NUM_LAYOUT_FEATURES), -1, np.int8)
    for tensor in range(tensors):
        first = tensor * MAX_RANK
        own = generator.permutation(orders)[:ORDERS]
        choices[1:, first : first + length] = own[picked[:, tensor]]
    return choices


def draw_configs(
    seed: int,
    candidates: Candidates,
    count: int,
    distinct: int | None = None,
    changed: float = RANDOM,
) -> np.ndarray:
    """Draw the choice (configs, configurable) of each configuration for each node.

    Args:
        changed: the share of the nodes that each configuration sets at random; the others have
            the compiler's choice.
    """
    generator = np.random.default_rng(seed)
    number = np.array([len(choices) for choices in candidates.layouts])
    shape = (distinct or count, len(number))
    chosen = generator.integers(0, number, shape) * (generator.random(shape) < changed)
    return chosen if distinct is None else chosen[np.arange(count) % distinct]


def write_layout_file(
    path: Path,
    program: Program,
    candidates: Candidates,
    chosen: np.ndarray,
    *,
    labelled: bool = True,
) -> None:
    """Write the same npz file as np.savez_compressed, one block of configurations at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = _program_arrays(program) | {
        "node_config_ids": program.configurable,
        "node_splits": np.array([[0, len(program.opcodes)]]),
        "config_runtime": _runtimes(candidates, chosen) * labelled,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
        with archive.open("node_config_feat.npy", "w", force_zip64=True) as member:
            shape = (*chosen.shape, NUM_LAYOUT_FEATURES)
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            for block in _expand(candidates, chosen):
                member.write(block.tobytes())


def write_tile_file(path: Path, seed: int, nodes: int, configs: int, *, labelled: bool) -> None:
    """Write a kernel with random tiles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    program = make_program(seed, nodes, max(1, round(1.1 * nodes)) if nodes > 1 else 0, 0)
    tiles = np.zeros((configs, NUM_TILE_FEATURES), np.float32)
    tiles[:, 8:12] = 2 ** generator.integers(0, 8, (configs, 4))
    tiles[:, 14], tiles[:, 15] = tiles[:, 8:14].sum(axis=1), tiles[:, 8:12].prod(axis=1)
    off = np.abs(np.log2(tiles[:, 8:12]) - BEST_TILE) @ TILE_COSTS
    noise = generator.normal(1, 0.01, configs)
    runtimes = np.round(1e5 * (1 + off) * noise).astype(np.int64)
    np.savez_compressed(
        path,
        **_program_arrays(program),
        config_feat=tiles,
        config_runtime=runtimes * labelled,
        config_runtime_normalizers=np.full(configs, 100_000),
    )


def _program_arrays(program: Program) -> dict[str, np.ndarray]:
    return {
        "node_feat": program.features,
        "node_opcode": program.opcodes,
        "edge_index": np.asfortranarray(program.edges),
    }


def _runtimes(candidates: Candidates, chosen: np.ndarray) -> np.ndarray:
    """Return nanoseconds (configs,) int64, with noise and, by rounding, ties."""
    cost = np.zeros(len(chosen))
    for node, costs in enumerate(candidates.costs):
        cost += costs[chosen[:, node]]
    noise = np.random.default_rng(0).normal(1, 0.002, len(chosen))
    return 1000 * np.round(1e3 * (1 + cost / max(1, len(candidates.costs))) * noise).astype(int)


def _expand(candidates: Candidates, chosen: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the config tensor (configs, configurable, 18) float32 in blocks."""
    for first in range(0, len(chosen), BLOCK_ROWS):
        rows = chosen[first : first + BLOCK_ROWS]
        block = np.empty((*rows.shape, NUM_LAYOUT_FEATURES), np.float32)
        for node, layouts in enumerate(candidates.layouts):
            block[:, node] = layouts[rows[:, node]]
        yield block
