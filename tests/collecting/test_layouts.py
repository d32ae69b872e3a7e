"""Requested layouts are set, and change only the time; so do options, which files hold as well."""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from solution.collecting.child import Compile, Compiled, Optimise
from solution.collecting.constraints import constrain, find_ranks
from solution.collecting.cpu import Builder, Workers
from solution.collecting.options import list_settings
from solution.collecting.program_space import LAYOUTS, OPTIONS, make_collected_space
from solution.collecting.records import Destination, write_graph
from solution.collecting.space import draw_new, name_config
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.graph import Graph, InvalidGraphError
from solution.domain.vocabulary import OPTION_CHOICES, OPTION_NAMES
from solution.features.table import OPTION_FEATURES
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.hlo.nodes import read_nodes
from solution.programs.portable import make_portable
from solution.programs.program import Program
from solution.store.graph_file import read_prepared, write_prepared
from solution.system.errors import InputError
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made import modules
from tests.made.timed import read_text


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_constraints_leave_the_instructions_and_edges_of_a_program(seed: int) -> None:
    generator, module = np.random.default_rng(seed), modules.make_module()
    program, layouts = Program("p", module, []), np.full((2, 3, 6), -1, np.int8)
    for node, tensor in np.argwhere(find_ranks(module, program.configurable) > 0):
        if generator.random() < 0.5:
            layouts[node, tensor, :2] = generator.permutation(2)
    changed = MESSAGES["Module"].FromString(constrain(module, program.configurable, layouts))
    constraints = [i for i in instructions(changed) if i.custom_call_target == "LayoutConstraint"]
    behind = {i.id: i.operand_ids[0] for i in constraints}
    assert len(behind) == (layouts[..., 0] >= 0).sum()

    def origin(number: int) -> int:
        return origin(behind[number]) if number in behind else number

    kept = [i for i in instructions(changed) if i.id not in behind]
    assert [i.id for i in kept] == [i.id for i in instructions(module)]
    for found, expected in zip(kept, instructions(module), strict=True):
        assert [origin(o) for o in found.operand_ids] == list(expected.operand_ids)
    read_nodes(changed)  # every id is there, once


def test_random_configurations_are_new_and_permutations(dense: Program) -> None:
    space = make_collected_space(dense, LAYOUTS)
    for parents in (None, space.default[None]):
        drawn = draw_new(space, np.random.default_rng(0), 50, {name_config(space.default)}, parents)
        assert len({name_config(values) for values in drawn}) == len(drawn) > 30
        ranks = find_ranks(dense.module, dense.configurable)
        for layouts in space.layouts(drawn):
            for layout, rank in zip(layouts.reshape(-1, 6), ranks.ravel(), strict=True):
                assert sorted(layout[layout >= 0]) in ([], list(range(rank)))


def test_layouts_change_executables_and_not_results(workers: Workers, dense: Program) -> None:
    builder, space = Builder(workers.compiling, dense), make_collected_space(dense, LAYOUTS)
    plain = builder.open()
    for values in draw_new(space, np.random.default_rng(1), 4, set()):
        status, note, compiled = builder.build(Compile(*space.prepare(values)))
        assert (status, note) == ("sound", "")
        assert isinstance(compiled, Compiled) and compiled.executable != plain.executable


NESTED = """
import jax
import jax.numpy as jnp
import numpy as np

@jax.jit
def program(x, w):
    return x + x @ w

arguments = (np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
"""


def test_layouts_are_set_inside_called_functions(workers: Workers, tmp_path: Path) -> None:
    """XLA distinguishes instructions of a computation by the lower half of their ids alone."""
    program = read_text(NESTED, tmp_path / "nested.py", workers)
    assert len(program.module.computations) > 1
    builder, space = Builder(workers.compiling, program), make_collected_space(program, LAYOUTS)
    builder.open()
    for values in draw_new(space, np.random.default_rng(1), 4, set()):
        assert builder.build(Compile(*space.prepare(values)))[:2] == ("sound", "")


def test_a_rejected_configuration_is_a_status(workers: Workers, dense: Program) -> None:
    builder = Builder(workers.compiling, dense)
    status, note, _ = builder.build(Compile(dense.plain, Flags((("xla_cpu_no_such", True),))))
    assert status == "refused"
    assert "xla_cpu_no_such" in note
    assert builder.build(Compile(dense.plain, Flags()))[0] == "sound"


def test_fields_of_one_backend_are_removed() -> None:
    module, left_out = modules.make_module(), {"schedule", "input_output_alias", "buffer_donor"}
    module.schedule.SetInParent()
    module.input_output_alias = module.buffer_donor = b"\x08\x01"
    assert left_out <= {field.name for field, _ in module.ListFields()}
    assert not left_out & {field.name for field, _ in make_portable(module).ListFields()}


THREE = """
import numpy as np
from jax import numpy as jnp

def program(x, *weights):
    made = jnp.tanh(x)
    return [made @ each for each in weights]

arguments = (np.ones((8, 16, 64), np.float32), *(np.ones((64, 64), np.float32) for _ in range(3)))
"""


def test_each_reader_of_a_tensor_gets_its_layout(workers: Workers, tmp_path: Path) -> None:
    """The compiler merges custom calls that differ only in the layouts of their results."""
    program = read_text(THREE, tmp_path / "three.py", workers)
    space = make_collected_space(program, LAYOUTS)
    asked = [(0, 1, 2), (1, 0, 2), (1, 2, 0)]
    config = space.default.copy()
    for number, site in enumerate(space.layout_sites):
        node, tensor = site.index
        if tensor == 1:
            config[number] = site.values[:, :3].tolist().index(list(asked[node]))
    compiled = workers.compiling.ask(Optimise(*space.prepare(config)))
    module = MESSAGES["Module"].FromString(compiled)
    found = {tuple(i.shape.layout.minor_to_major) for i in instructions(module)}
    assert found >= set(asked)


EACH = [
    (option, choice)
    for option, choices in enumerate(OPTION_CHOICES.values())
    for choice in range(1, len(choices))
]

SINCE = {"tiling_propagation": Version("0.10.2")}  # of jax; earlier versions reject the option


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return the npz file of seven nodes with nine configurations that take 100 to 900 ns."""
    program = Program("p", modules.make_module(), [])
    space = make_collected_space(program, OPTIONS)
    known = {name_config(space.default)}
    drawn = [space.default, *draw_new(space, np.random.default_rng(0), 8, known)]
    measured = [(config, 100 * number) for number, config in enumerate(drawn, 1)]
    destination = Destination(tmp_path, "layout:xla:random", "train")
    return write_graph(program, space, measured, destination)[1]


def test_the_compiler_takes_each_choice(workers: Workers, dense: Program) -> None:
    builder, space = Builder(workers.compiling, dense), make_collected_space(dense, OPTIONS)
    builder.open()
    for option, choice in EACH:
        config = space.default.copy()
        config[option] = choice
        state, reason, _ = builder.build(Compile(*space.prepare(config)))
        name = OPTION_NAMES[option]
        if name in SINCE and Version(version("jax")) < SINCE[name]:
            assert state == "refused" and "No such compile option" in reason, name
        else:
            assert (state, reason) == ("sound", ""), (name, choice)


def test_a_program_without_a_graph_is_not_timed(fastslow: FastSlow, tmp_path: Path) -> None:
    """For layouts and for options."""
    path, out = tmp_path / "sums.py", tmp_path / "out"
    path.write_text("def program(x):\n    return x[0] + x[1]\narguments = ((1.0, 2.0),)\n")
    for kind in ("options", "layout"):
        done = fastslow("collect", kind, path, "--out", out, "--keep-flat", "--minutes", "0.1")
        message = assert_refused(done)
        assert "a convolution" in message and "choose PROGRAM" in message
        assert not (out / "log").exists()


@pytest.fixture
def graph(written: Path) -> Graph:
    return read_graph(written, collection("layout:xla:random"))


def test_options_come_back_from_files_and_the_store(graph: Graph, tmp_path: Path) -> None:
    assert graph.options is not None
    assert graph.options.shape == (9, len(OPTION_NAMES))
    assert not graph.options[0].any()
    assert graph.runtimes is not None
    assert graph.runtimes.tolist() == list(range(100, 1000, 100))
    write_prepared(graph, {}, tmp_path / "g.safetensors")
    again = read_prepared(tmp_path / "g.safetensors")
    np.testing.assert_array_equal(again.options, graph.options)


@pytest.mark.parametrize("count", [1, 5])
def test_options_that_an_older_file_lacks_are_the_defaults(
    written: Path, graph: Graph, count: int
) -> None:
    assert graph.options is not None
    rewrite_options(written, graph.options[:, :count], OPTION_NAMES[:count])
    before = read_graph(written, collection("layout:xla:random"))
    expected = np.where(np.arange(len(OPTION_NAMES)) < count, graph.options, 0)
    np.testing.assert_array_equal(before.options, expected)


@pytest.mark.parametrize("names", [OPTION_NAMES[::-1], (*OPTION_NAMES, "later"), ("other",)])
def test_options_of_another_version_are_refused(written: Path, names: tuple[str, ...]) -> None:
    rewrite_options(written, np.zeros((9, len(names)), np.int8), names)
    with pytest.raises(InputError, match="another version"):
        read_graph(written, collection("layout:xla:random"))


def rewrite_options(path: Path, options: np.ndarray, names: tuple[str, ...]) -> None:
    """Replace the options in the file."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays |= {"config_options": options, "config_option_names": np.array(names)}
    np.savez(path, **arrays)


def test_a_search_tries_every_choice_with_the_choices_that_it_needs() -> None:
    settings = list_settings()
    assert sorted(setting[0] for setting in settings) == sorted(EACH)
    own_loops, wide = (OPTION_NAMES.index("products"), 1), (OPTION_NAMES.index("vector_width"), 1)
    assert [own_loops, (0, 1), wide] in settings  # no library takes products then


def test_configurations_that_differ_in_options_alone_are_distinct(graph: Graph) -> None:
    assert graph.options is not None
    assert len(graph.distinct.first) == len(np.unique(graph.options, axis=0)) == 9
    some = graph.select(np.array([3, 3, 1]))
    np.testing.assert_array_equal(some.options, graph.options[[3, 3, 1]])
    assert len(some.distinct.first) == 2


def test_an_unknown_choice_is_refused(graph: Graph) -> None:
    assert graph.options is not None
    bad = graph.options.copy()
    bad[2, 0] = 99
    with pytest.raises(InvalidGraphError, match="choices.*2"):
        type(graph)(**{**vars(graph), "options": bad})


def test_options_are_looked_up_and_tabulated_but_not_ranked(
    written: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    assert "expected layouts" in assert_refused(fastslow("rank", written))
    said = assert_said(fastslow("choose", written, "--replay"))
    assert "9 configurations" in said and "Best found: 0" in said
    words = ("features", "layout:xla:random", "--data", tmp_path, "--out", "table.parquet")
    assert_said(fastslow(*words))
    rows = pl.read_parquet(tmp_path / "table.parquet")
    assert {feature.name for feature in OPTION_FEATURES[OPTION_NAMES]} <= set(rows.columns)
    assert len(rows) == 9
