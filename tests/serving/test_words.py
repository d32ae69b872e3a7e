"""What a configuration is, in words that a compiler engineer can act on."""

import dataclasses

import numpy as np

from solution.domain.codebook_encoder import encode
from solution.domain.vocabulary import OPTION_NAMES
from solution.serving.words import describe_configs, list_layouts
from tests.made.graphs import make_layout_graph, make_tile_graph


def test_layouts_are_named_where_they_differ_from_the_programs() -> None:
    layouts = np.full((4, 3, 3, 6), -1, np.int8)
    layouts[1, 0, 0, :2] = 1, 0  # of the dot's output, as it is: row-major
    layouts[2, 0, 0, :2] = 0, 1
    layouts[2, 1, 1, :2] = 0, 1
    layouts[3, 0, :, :2] = (0, 1), (1, 0), (0, 1)
    graph = dataclasses.replace(
        make_layout_graph(0), configs=encode(layouts.reshape(4, 3, 18)), runtimes=None
    )
    assert describe_configs(graph, np.arange(4)) == [
        "as the compiler has it",
        "as the compiler has it, asked for at dot 2",
        "dot 2 output {0,1}; reshape 5 input {0,1}",
        "dot 2 output {0,1} kernel {0,1}",
    ]


def test_the_whole_of_a_configuration_is_all_that_it_asks_for() -> None:
    """Also what the compiler would do anyway: other configurations, other words."""
    layouts = np.full((4, 3, 3, 6), -1, np.int8)
    layouts[1, 0, 0, :2] = 1, 0  # as it is
    layouts[2, 0, :, :2] = (0, 1), (1, 0), (0, 1)
    layouts[3, :, 0, :2] = 1, 0
    graph = dataclasses.replace(
        make_layout_graph(0), configs=encode(layouts.reshape(4, 3, 18)), runtimes=None
    )
    dot, other, reshape = graph.configurable
    assert list_layouts(graph, np.arange(4)) == [
        [],
        [(dot, "output", [1, 0])],
        [(dot, "output", [0, 1]), (dot, "input", [1, 0]), (dot, "kernel", [0, 1])],
        [(node, "output", [1, 0]) for node in (dot, other, reshape)],
    ]
    lines = describe_configs(graph, np.arange(4), whole=True)
    assert lines[:3] == [
        "as the compiler has it", "dot 2 output {1,0}",
        "dot 2 output {0,1} input {1,0} kernel {0,1}",
    ]  # fmt: skip
    assert lines[3].count(" output {1,0}") == 3
    assert len(set(lines)) == 4


def test_tiles_have_their_sizes() -> None:
    graph = make_tile_graph(0, configs=2)
    tiles = np.zeros((2, 24), np.float32)
    tiles[0, [8, 9, 16]] = 4, 28, 8
    graph = dataclasses.replace(graph, configs=tiles, runtimes=None)
    assert describe_configs(graph, np.arange(2)) == ["output 4x28, input 8", "no tile"]


def test_options_are_named_where_they_are_not_the_compilers_own() -> None:
    graph = make_layout_graph(0, configs=2)
    options = np.zeros((2, len(OPTION_NAMES)), np.int8)
    options[1, :2] = 2, 1
    graph = dataclasses.replace(graph, options=options)
    assert describe_configs(graph, np.arange(2)) == [
        "as the compiler has it", "library_fusions dot, products own_loops",
    ]  # fmt: skip
