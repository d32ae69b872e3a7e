"""Tensors of more than six dimensions: as much is described as TpuGraphs' extractor keeps."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from solution.choosing.program_space import make_program_space
from solution.collecting.labelling import Workers
from solution.collecting.options import OptionSpace
from solution.collecting.records import Measured, Place, write_graph
from solution.collecting.spaces import LayoutSpace
from solution.collecting.tiles import TileSpace
from solution.data.npz import read_graph as read_npz
from solution.domain import vocabulary
from solution.domain.collection import collection as find_collection
from solution.features.candidates import make_candidates
from solution.features.padding import repair_padding
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.nodes import read_nodes
from solution.programs.program import Program, make_graph, read_programs
from solution.serving.reading import read_question
from solution.system.errors import InputError
from tests.made import modules

LONGER = ("rank_seven.hlo", "rank_seven.py", "tensor-network/network.py",
          "tiled-four-dimensions/tiled.py")  # fmt: skip
PRODUCT = """HloModule product
ENTRY main {
  t = f32[1,1,1,1,1,4,8] parameter(0)
  x = f32[4,8] reshape(t)
  w = f32[8,16] parameter(1)
  ROOT d = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

BOUNDED = """HloModule bounded
ENTRY main {
  x = f32[<=8,4] parameter(0)
  w = f32[4,16] parameter(1)
  ROOT d = f32[<=8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def read(path: Path, workers: Workers) -> Program:
    (program,) = read_programs(path, workers.compiling)
    return program


def test_the_first_six_numbers_of_each_list_are_kept(cases: Path) -> None:
    question = read_question(cases / "rank_seven.hlo")
    graph = question.graph
    assert graph.num_nodes == 5
    assert [vocabulary.OPCODES[k] for k in graph.node_opcodes[graph.configurable]] == [
        "reshape", "dot",
    ]  # fmt: skip
    x, transposed, *_ = graph.node_features
    assert x[vocabulary.SHAPE_DIMENSIONS].tolist() == [2] * 6
    assert (x[vocabulary.SHAPE_SUM], x[vocabulary.SHAPE_PRODUCT]) == (20, 512)
    assert x[vocabulary.NODE_LAYOUT].tolist() == [6, 5, 4, 3, 2, 1]
    assert transposed[vocabulary.DIMENSIONS].tolist() == [1, 0, 2, 3, 4, 5]
    # The reshape reads the tensor of seven dimensions, whose order six slots do not hold.
    drawn = graph.layouts.expand().reshape(-1, 2, 3, 6)
    is_set = (drawn != vocabulary.LAYOUT_UNSET).any(axis=(0, 3))
    assert is_set.tolist() == [[True, False, False], [True, True, True]]


def test_models_see_orders_of_six_dimensions() -> None:
    """The seventh is left out, and what is missing then follows."""
    x = modules.node(1, "parameter", modules.shape(2, 2, 2, 2, 2, 2, 8))
    order = [6, 0, 1, 2, 3, 4, 5]
    moved = modules.node(2, "transpose", modules.shape(8, 2, 2, 2, 2, 2, 2), (1,), dimensions=order)
    summed = modules.node(3, "reduce", modules.shape(2), (2,), dimensions=[0, 1, 2, 3, 4, 6])
    nodes = read_nodes(modules.module(("main", 3, [x, moved, summed])))
    question = Program("made", modules.module(("main", 3, [x, moved, summed])), None)
    assert nodes.features[1, vocabulary.DIMENSIONS].tolist() == order[:6]
    features = repair_padding(make_graph(question, "layout:xla:random")).node_features
    assert features[0, vocabulary.NODE_LAYOUT].tolist() == [5, 4, 3, 2, 1, 0]
    assert features[1, vocabulary.DIMENSIONS].tolist() == [0, 1, 2, 3, 4, 5]
    assert features[2, vocabulary.DIMENSIONS].tolist()[:5] == [0, 1, 2, 3, 4]
    for columns in vocabulary.DIMENSION_NUMBERS:
        assert features[:, columns].max() < vocabulary.MAX_RANK


@pytest.mark.parametrize("name", LONGER)
def test_such_programs_are_ranked_searched_and_written(
    name: str, cases: Path, workers: Workers, tmp_path: Path
) -> None:
    program = read(cases / name, workers)
    ranks = [len(i.shape.dimensions) for i in instructions(program.module)]
    assert max(ranks) > vocabulary.MAX_RANK
    for collection in ("layout:xla:random", "tile:xla"):
        assert make_candidates(make_graph(program, collection)).num_configs > 8
    assert max(make_program_space(program, ()).ranks) <= vocabulary.MAX_RANK
    for make in (OptionSpace, partial(LayoutSpace, search="random")):
        _, npz = write_measured(
            program, make, "layout:xla:random", tmp_path / make.__class__.__name__
        )
        graph = read_npz(npz, find_collection("layout:xla:random"))
        assert graph.num_configs == 4
        assert make_candidates(graph).num_configs > 8


def test_tiles_of_a_product_beside_a_longer_tensor_are_written(
    workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "product.hlo").write_text(PRODUCT)
    program = read(tmp_path / "product.hlo", workers)
    _, npz = write_measured(program, TileSpace, "tile:xla", tmp_path)
    assert read_npz(npz, find_collection("tile:xla")).num_configs == 4


def write_measured(program: Program, make: type, collection: str, out: Path) -> tuple[Path, Path]:
    space, generator = make(program), np.random.default_rng(0)
    drawn = [space.default, *space.draw(generator, 3, [])[:3]]
    measured = [Measured(values, 1000 + place) for place, values in enumerate(drawn)]
    return write_graph(program, space, measured, Place(out, collection, "train"))


@pytest.mark.parametrize("what", ["a parameter", "a result on the way"])
def test_a_size_that_is_not_known_is_said_before_anything_is_measured(
    what: str, tmp_path: Path, workers: Workers
) -> None:
    is_parameter = what == "a parameter"
    x = modules.node(1, "parameter", modules.shape(-(2**63) if is_parameter else 8, 4))
    y = modules.node(2, "custom-call", modules.shape(-(2**63), 4), (1,), name="grown")
    path = modules.write(modules.module(("main", 2, [x, y])), tmp_path / "mine.pb")
    for read_it in (lambda: read(path, workers), lambda: read_question(path)):
        with pytest.raises(InputError, match="unknown size") as raised:
            read_it()
        assert str(path) in str(raised.value)
        assert ("parameter 0" if is_parameter else "grown") in str(raised.value)


def test_a_bound_is_the_size_of_a_dimension(tmp_path: Path, workers: Workers) -> None:
    (tmp_path / "bounded.hlo").write_text(BOUNDED)
    features = read(tmp_path / "bounded.hlo", workers).nodes.features
    assert features[0, vocabulary.SHAPE_DIMENSIONS].tolist() == [8, 4, 0, 0, 0, 0]
