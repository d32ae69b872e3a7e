"""Layouts that no tensor can have are named, whoever brings them; all others pass."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from solution import load_bundle
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.serving.possible import check_layouts, describe_impossible
from solution.system.errors import InputError
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, write_graph

OUTPUT, INPUT, KERNEL = (slice(first, first + 6) for first in (0, 6, 12))
DOT, RESHAPE = 0, 1  # positions of configurable nodes: ranks 2 and 3
IMPOSSIBLE = {
    "an axis twice": (DOT, OUTPUT, [0, 0, -1, -1, -1, -1], "dot 2 the output {0,0}"),
    "axes that it lacks": (DOT, OUTPUT, [5, 4, 3, 2, 1, 0], "dot 2 the output {5,4,3,2,1,0}"),
    "one axis too many": (DOT, OUTPUT, [2, -1, -1, -1, -1, -1], "dot 2 the output {2}"),
    "nothing before an axis": (DOT, OUTPUT, [-1, 0, 1, -1, -1, -1], "dot 2 the output {-1,0,1}"),
    "a gap": (RESHAPE, OUTPUT, [2, -1, 0, -1, -1, -1], "reshape 5 the output {2,-1,0}"),
    "of what is read": (RESHAPE, INPUT, [0, 2, -1, -1, -1, -1], "reshape 5 the input {0,2}"),
    "of a kernel": (DOT, KERNEL, [1, 0, 1, -1, -1, -1], "dot 2 the kernel {1,0,1}"),
}
POSSIBLE = {
    "whole": (RESHAPE, OUTPUT, [2, 0, 1, -1, -1, -1]),
    "shorter than the rank": (RESHAPE, OUTPUT, [2, 0, -1, -1, -1, -1]),
    "unset": (RESHAPE, OUTPUT, [-1] * 6),
    "of what is read": (DOT, KERNEL, [0, 1, -1, -1, -1, -1]),
}


def put(graph: Graph, node: int, tensor: slice, slots: list[int]) -> np.ndarray:
    """The graph's configurations, of which number 3 gives the tensor such a layout."""
    configs = graph.layouts.expand().copy()
    configs[3, node, tensor] = slots
    return configs


@pytest.mark.parametrize("node, tensor, slots, words", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_layout_is_named(
    node: int, tensor: slice, slots: list[int], words: str
) -> None:
    graph = make_layout_graph()
    configs = put(graph, node, tensor, slots)
    expected = f"configuration 3 gives {words}, which no tensor can have"
    with pytest.raises(InputError) as refused:
        check_layouts(graph, configs)
    assert str(refused.value).startswith(f"program: {expected}")
    odd = dataclasses.replace(graph, configs=encode(configs))
    assert describe_impossible(odd).startswith(expected)
    assert not describe_impossible(odd.select(np.array([0, 1, 2, 4])))  # it is not there any more


@pytest.mark.parametrize("node, tensor, slots", POSSIBLE.values(), ids=POSSIBLE)
def test_other_layouts_pass(node: int, tensor: slice, slots: list[int]) -> None:
    graph = make_layout_graph()
    configs = put(graph, node, tensor, slots)
    check_layouts(graph, configs)
    assert not describe_impossible(dataclasses.replace(graph, configs=encode(configs)))


def test_a_rank_that_nothing_says_refuses_no_axis() -> None:
    graph = make_layout_graph()
    scalars = dataclasses.replace(graph, node_features=np.zeros_like(graph.node_features))
    check_layouts(scalars, put(graph, DOT, OUTPUT, [5, 4, 3, 2, 1, 0]))


def test_a_session_refuses_them() -> None:
    graph = make_layout_graph(20, configs=30, name="new")
    session = load_bundle().session(graph)
    with pytest.raises(InputError, match="new: configuration 3 gives dot 2 the output {0,0}"):
        session.score(put(graph, DOT, OUTPUT, [0, 0, -1, -1, -1, -1]))


def test_check_and_rank_warn_of_them(fastslow: FastSlow, tmp_path: Path) -> None:
    """And go on: the competition's data is what it is."""
    graph = make_layout_graph(name="odd")
    configs = put(graph, DOT, OUTPUT, [5, 4, 3, 2, 1, 0])
    odd = dataclasses.replace(graph, configs=encode(configs))
    file = write_graph(odd, tmp_path / "data")
    write_graph(make_layout_graph(1, name="sound"), tmp_path / "data")
    assert fastslow("prepare", "data", "--whole", "--out", "store").returncode == 0
    warned = "configuration 3 gives dot 2 the output {5,4,3,2,1,0}"
    for arguments in (["check", "data"], ["check", "store"], ["rank", file]):
        done = fastslow(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(warned) == 1
        line = next(line for line in done.stderr.splitlines() if warned in line)
        assert "odd." in line.partition(":")[0]
