"""Searches for a TPU decide the layouts of a repeated layer once for all its copies.

The real compiler is asked: these tests need the extra `tpu`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("libtpu", reason="the TPU's compiler comes with the extra `tpu`")

from solution.choosing.handing import CHOICE, describe_choice
from solution.choosing.in_jax import SNIPPET
from solution.choosing.journal import RECORD
from solution.choosing.tpu_files import hand_over_estimated
from solution.collecting.cpu import Workers
from solution.collecting.tpu.kernels import VARIABLE
from solution.collecting.tpu.repeats import group_copies
from solution.collecting.tpu.space import TpuSpace, make_search_space
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program
from solution.serving.words import SHOWN
from solution.system.files import read_sealed, write_sealed
from tests.conftest import assert_refused, assert_said
from tests.made.modules import dot, module, node, shape
from tests.made.timed import read_text
from tests.processes import TRAINING

START = "import jax\nimport jax.numpy as jnp\n"  # of each of these programs
# Three layers with attention; the first one reads the program's parameter.
ATTENTION = """
def layer(x, w):
    q, k, v = (jnp.einsum("bsd,dhe->bhse", x, w[n]) for n in "qkv")
    a = jax.nn.softmax(jnp.einsum("bhse,bhte->bhst", q, k))
    x = x + jnp.einsum("bhst,bhte->bshe", a, v).reshape(x.shape)
    return x + jax.nn.gelu(x @ w["u"]) @ w["d"]

def program(x, weights):
    for w in weights:
        x = layer(x, w)
    return x.mean(1)

def make():
    heads = {n: jnp.ones((16, 2, 8)) for n in "qkv"}
    return {**heads, "u": jnp.ones((16, 32)), "d": jnp.ones((32, 16))}

arguments = (jnp.ones((2, 8, 16)), [make() for _ in range(LAYERS)])
"""
# A step of training: the gradients of the weights are made outside of the layers.
STEP = """
def loss(weights, x):
    for u, d in weights:
        x = x + jax.nn.relu(x @ u) @ d
    return (x ** 2).mean()

def program(weights, x):
    return jax.grad(loss)(weights, x)

one = lambda: (jnp.ones((16, 32)), jnp.ones((32, 16)))
arguments = ([one() for _ in range(4)], jnp.ones((8, 16)))
"""
DENSE = """
def program(x, weights):
    for u, d in weights:
        x = x + jnp.tanh(x @ u) @ d
    return x

one = lambda: (jnp.ones((16, 32)), jnp.ones((32, 16)))
arguments = (jnp.ones((8, 16)), [one() for _ in range(3)])
"""
# The layer is a function that is compiled once and called three times.
CALLED = """
@jax.jit
def layer(x, w):
    return x + jax.nn.relu(x @ w) @ w.T

def program(x, weights):
    for w in weights:
        x = layer(x, w)
    return x

arguments = (jnp.ones((8, 16)), [jnp.ones((16, 32)) for _ in range(3)])
"""
IMAGES = """
def conv(x, w):
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=names)

def program(x, first, weights):
    x = conv(x, first)
    for a, b in weights:
        x = jax.nn.relu(x + conv(jax.nn.softplus(conv(x, a)), b))
    return x.mean((1, 2))

one = lambda: jnp.ones((3, 3, 16, 16))
arguments = (jnp.ones((4, 8, 8, 3)), jnp.ones((3, 3, 3, 16)), [(one(), one()) for _ in range(3)])
"""


def read(text: str, folder: Path, workers: Workers) -> Program:
    return read_text(START + text, folder / "program.py", workers, "tpu")


def list_sets(space: TpuSpace) -> list[list[int]]:
    """Return the configurable nodes that each site decides."""
    return [[site.index[0], *site.copies] for site in space.layout_sites]


def test_every_copy_of_a_layer_gets_the_same_layouts(workers: Workers, tmp_path: Path) -> None:
    program = read(ATTENTION.replace("LAYERS", "3"), tmp_path, workers)
    space, each = make_search_space(program), make_search_space(program, each_copy=True)
    sets = list_sets(space)
    assert sorted(sum(sets, [])) == list(range(len(program.configurable)))
    assert {len(nodes) for nodes in sets} == {3}
    # no set has two nodes of a layer, such as a query's product and a key's
    per_layer = len(sets)
    assert all(np.diff(nodes).tolist() == [per_layer] * 2 for nodes in sets)
    options = len(space.option_choices)
    assert each.sites - options == 3 * (space.sites - options)
    assert "3 copies" in space.describe_copies() and not each.describe_copies()
    for config in space.draw(np.random.default_rng(0), 20):
        layouts = space.layouts(config[None])[0]
        for nodes, site, choice in zip(sets, space.layout_sites, config, strict=False):
            assert (layouts[nodes] == site.values[choice]).all()
    # the compiler gets the module in which each copy is set by hand
    config = space.probe(0)
    by_hand = each.default.copy()
    for number, nodes in enumerate(sets):
        by_hand[nodes] = config[number]
    by_hand[-options:] = config[-options:]
    assert space.prepare(config) == each.prepare(by_hand)


def test_a_program_without_repeats_is_unchanged(workers: Workers, tmp_path: Path) -> None:
    """A query's, a key's and a value's product are alike, but they are no copies of a layer."""
    program = read(ATTENTION.replace("LAYERS", "1"), tmp_path, workers)
    space, each = make_search_space(program), make_search_space(program, each_copy=True)
    assert not space.describe_copies()
    assert space.sizes.tolist() == each.sizes.tolist()
    assert space.links.tolist() == each.links.tolist() and space.opcodes == each.opcodes
    drawn, others = (one.draw(np.random.default_rng(0), 9) for one in (space, each))
    assert drawn.tolist() == others.tolist()
    assert [space.prepare(config) for config in drawn] == [each.prepare(row) for row in others]


@pytest.mark.parametrize(
    ("text", "copies"), [(STEP, 4), (CALLED, 3), (IMAGES, 3)], ids=["step", "called", "images"]
)
def test_gradients_called_layers_and_convolutions_have_copies(
    text: str, copies: int, workers: Workers, tmp_path: Path
) -> None:
    program = read(text, tmp_path, workers)
    space = make_search_space(program, ("layouts",))
    nodes = [instruction.opcode for instruction in instructions(program.module)]
    for found in list_sets(space):
        assert len({nodes[program.configurable[copy]] for copy in found}) == 1
    # a layer that is called has its nodes once in the module, which is one site already
    if text is CALLED:
        assert space.sites < 2 * copies
    else:
        assert max(map(len, list_sets(space))) == copies
        assert space.sites <= len(program.configurable) / copies + 4


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_word_that_is_repeated_is_found(data: st.DataObject) -> None:
    """Against the definition: in (before, word, ..., word, after), letters of the words
    correspond."""
    word = data.draw(st.text("dt", min_size=1, max_size=6).filter(lambda w: "d" in w))
    period = next(
        p for p in range(1, 7) if len(word) % p == 0 and word == word[:p] * (len(word) // p)
    )
    copies = data.draw(st.integers(3, 5)) * len(word) // period
    before = data.draw(st.text("ae", max_size=3))
    nodes = [node(1, "parameter", shape(4, 4))]
    letters = {"d": "dot", "t": "tanh", "a": "abs", "e": "exponential", "s": "sine"}
    line = [*before, *word[:period] * copies, "s"]
    for number, letter in enumerate(line, 2):
        operands, more = (number - 1,), {}
        if letter == "d":
            operands, more = (number - 1, 1), {"dot": dot([1], [0], [], [])}
        nodes.append(node(number, letters[letter], shape(4, 4), operands, **more))
    sites = {number: site for site, number in enumerate(n.id for n in nodes if n.opcode == "dot")}
    made = module(("main", nodes[-1].id, nodes))
    made.entry_computation_id = 1
    groups = group_copies(made, sites)
    expected = [(number - 2 - len(before)) % period for number in sites]
    for site, other in np.ndindex(len(sites), len(sites)):
        assert (groups[site] == groups[other]) == (expected[site] == expected[other]), (word, line)


def test_the_files_have_the_layouts_of_all_copies(workers: Workers, tmp_path: Path) -> None:
    program = read(IMAGES, tmp_path, workers)
    space = make_search_space(program, ("layouts",))
    hand_over_estimated(space, space.probe(0), tmp_path, {"target": "tpu:v5e"})
    layouts = json.loads((tmp_path / CHOICE).read_text())["layouts"]
    chosen: dict[int, list[Any]] = {node: [] for node in program.configurable.tolist()}
    for one in layouts:
        chosen[one["node"]].append((one["tensor"], one["minor_to_major"]))
    sets = list_sets(space)
    assert sorted(map(len, sets)) == [1, 3, 3]
    for nodes in sets:
        first, *copies = (chosen[program.configurable[node]] for node in nodes)
        assert first and all(copy == first for copy in copies)
    assert (tmp_path / SNIPPET).read_text().count("'output'") == len(layouts) == 7
    assert describe_choice(space, space.probe(0)).count("convolution") == SHOWN


def test_a_search_is_continued_and_another_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "dense.py").write_text(START + DENSE, encoding="utf-8")
    words = ("choose", "dense.py", "--target", "tpu:v5e", "--over", "layouts", "--search", "random")
    path = tmp_path / "chosen" / "dense" / RECORD

    def search(*more: str) -> Any:
        return TRAINING.run(*words, *more, cwd=tmp_path)

    said = assert_said(search("--compile", "1"))
    assert "3 copies of a layer: 2 layouts are decided once" in said and "(of 6)" in said
    before = json.loads(path.read_text())["trials"]
    assert_said(search("--compile", "3"))
    trials = json.loads(path.read_text())["trials"]
    assert trials[: len(before)] == before and len(trials) == 4

    other = assert_refused(search("--each-copy"))
    assert "layers" in other and "--replace" in other
    # a journal of a time when each copy was decided alone
    record = read_sealed(path, "a search")
    identity = {key: value for key, value in record["identity"].items() if key != "layers"}
    write_sealed({**record, "identity": identity}, path)
    assert "alone" in assert_refused(search("--compile", "4"))
    assert json.loads(path.read_text())["trials"] == trials
