"""A TPU's compiler ranks configurations, and is asked no more often than the budget says."""

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.collecting.lifting.lift import lift
from solution.collecting.target import parse_target
from solution.collecting.tpu import request_model, target
from solution.collecting.tpu.estimator import Estimator
from solution.collecting.tpu.ranking import BACKEND, Budget, rank_by_compiler
from solution.collecting.tpu.request_model import RequestModel, make_effects
from solution.collecting.tpu.requests import group_by_requests
from solution.data.folders import SAMPLE, find_files
from solution.domain.vocabulary import OPCODE_IDS
from solution.experiments.layout_compiler_001 import EXPERIMENT, CompilerSettings
from solution.features.candidates import make_candidates
from solution.models.catalogue import load_model, save_model
from solution.models.layout.known_costs import add_known_costs, list_known_costs
from solution.serving.reading import read_questions
from solution.system.errors import InputError
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made import modules
from tests.made.lifted import make_chain
from tests.made.modules import ask
from tests.made.timed import SCALAR

CONFIGS = 12


GRAPH = make_candidates(make_chain(3, 1, 256), CONFIGS)
MODULE = lift(GRAPH).module
COSTS = partial(list_known_costs, backend=BACKEND)


@pytest.fixture(scope="module")
def estimator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estimator]:
    pytest.importorskip("libtpu", reason="the extra `tpu` is not installed: no TPU's compiler")
    with Estimator(parse_target("tpu:v3"), cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def test_configurations_with_the_same_requests_are_one_module() -> None:
    sets = group_by_requests(GRAPH, MODULE)
    layouts = GRAPH.layouts.expand().reshape(GRAPH.num_configs, -1, 3, 6)
    slowly = [ask(MODULE, GRAPH.configurable, each) for each in layouts]
    assert [sets.write_module(number) for number in sets.of_config.tolist()] == slowly
    assert len(sets) == len(set(slowly)) and sets.counts.sum() == GRAPH.num_configs


def test_sets_of_requests_do_not_depend_on_the_order_of_configurations() -> None:
    order = np.random.default_rng(0).permutation(GRAPH.num_configs)
    sets, others = (group_by_requests(graph, MODULE) for graph in (GRAPH, GRAPH.select(order)))
    np.testing.assert_array_equal(others.of_config, sets.of_config[order])
    assert others.write_module(1) == sets.write_module(1)


def make_sets(seed: int, sets: int = 60, nodes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return the requests (sets, nodes) of made sets, three for each node, and log estimates that
    are sums of their effects."""
    generator = np.random.default_rng(seed)
    numbers = 3 * np.arange(nodes) + generator.integers(0, 3, (sets, nodes))
    return numbers, generator.normal(size=3 * nodes)[numbers].sum(axis=1)


def test_sums_of_effects_are_predicted_from_a_few_answers() -> None:
    """There are 1 + 5 x 2 unknowns; 16 answers determine them."""
    numbers, values = make_sets(0)
    model = RequestModel(
        [make_effects(numbers, np.ones(numbers.shape))], np.zeros(60), np.ones(60, np.int64)
    )
    asked = np.array(model.choose(np.empty(0, np.int64), 16))
    assert len(set(asked.tolist())) == 16
    found = model.predict(asked, values[asked])
    np.testing.assert_array_equal(found[asked], values[asked])
    assert np.corrcoef(found, values)[0, 1] > 0.99


def test_what_shares_nothing_with_the_answers_is_as_expected() -> None:
    expected = np.random.default_rng(1).normal(size=50)
    numbers = np.arange(50)[:, None]  # no two sets have anything in common
    model = RequestModel([make_effects(numbers, np.ones((50, 1)))], expected, np.ones(50, np.int64))
    asked = np.array(model.choose(np.empty(0, np.int64), 10))
    found = model.predict(asked, 3 + expected[asked])
    np.testing.assert_allclose(found, 3 + expected, atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_prediction_is_that_of_the_formula(seed: int) -> None:
    """One member of the mixture, beside the regression with explicit effects."""
    numbers, values = make_sets(seed, sets=20, nodes=3)
    values = values + np.random.default_rng(seed).normal(0, 0.1, 20)
    effects = make_effects(numbers, np.ones(numbers.shape))
    model = RequestModel([effects], np.zeros(20), np.ones(20, np.int64))
    model._members = model._members[:1]
    asked = np.arange(0, 20, 2)
    # ridge regression: a level with a penalty of 1 / LEVEL, effects with a penalty of 1
    columns = np.column_stack([np.full(20, request_model.LEVEL**0.5), effects.toarray()])
    x, y = columns[asked], values[asked] - values[asked].mean()
    ridge = x.T @ x + model._members[0].remainder * np.eye(x.shape[1])
    expected = values[asked].mean() + columns @ np.linalg.solve(ridge, x.T @ y)
    found, others = model.predict(asked, values[asked]), np.arange(1, 20, 2)
    np.testing.assert_allclose(found[others], expected[others], atol=1e-4)


def test_the_next_set_is_the_one_that_tells_most() -> None:
    """Of two groups, the second one is asked about once the first is known."""
    numbers = np.array([[0]] * 10 + [[1]] * 5)
    model = RequestModel(
        [make_effects(numbers, np.ones((15, 1)))], np.zeros(15), np.ones(15, np.int64)
    )
    first, second = model.choose(np.empty(0, np.int64), 2)
    assert first < 10 <= second
    assert model.choose(np.array([first, second]), 50) not in ([], [first])


def test_with_a_budget_for_all_the_order_is_the_estimates(estimator: Estimator) -> None:
    order = rank_by_compiler(GRAPH, MODULE, np.zeros(CONFIGS), COSTS, estimator, Budget(CONFIGS))
    assert order.asked == order.sets
    layouts = GRAPH.layouts.expand().reshape(CONFIGS, -1, 3, 6)
    slowly = [estimator.estimate(ask(MODULE, GRAPH.configurable, each)) for each in layouts]
    expected = np.array([answer.nanoseconds for answer in slowly], float)
    np.testing.assert_array_equal(order.estimates, expected)
    np.testing.assert_array_equal(np.argsort(order.scores), np.argsort(expected))


def test_a_budget_is_kept_and_said(estimator: Estimator) -> None:
    prior = add_known_costs(GRAPH, BACKEND)
    order = rank_by_compiler(GRAPH, MODULE, prior, COSTS, estimator, Budget(3))
    assert order.asked == 3 < order.sets
    assert np.isfinite(order.scores).all() and np.isnan(order.estimates).any()
    said = order.describe("tpu:v3", "the models")
    assert f"3 of {order.sets}" in said and "never timed" in said
    none = rank_by_compiler(GRAPH, MODULE, prior, COSTS, estimator, Budget(3, seconds=0))
    assert none.asked == 0
    np.testing.assert_array_equal(none.scores, prior)
    assert "order is that of the models" in none.describe("tpu:v3", "the models")


def test_a_refused_program_keeps_the_other_order(estimator: Estimator) -> None:
    """The compiler has no 64-bit floats."""
    double = MODULE.FromString(MODULE.SerializeToString())
    for computation in double.computations:
        for instruction in computation.instructions:
            instruction.shape.element_type = 12
    prior = np.arange(CONFIGS, dtype=float)
    order = rank_by_compiler(GRAPH, double, prior, COSTS, estimator, Budget(CONFIGS))
    assert not order.is_followed
    assert len(order.refused) == order.asked < order.sets
    np.testing.assert_array_equal(order.scores, prior)
    assert "f64" in order.describe("tpu:v3", "the models")


def test_the_experiment_keeps_the_contract_of_rankers(
    estimator: Estimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSLOW_TPU_CACHE", str(tmp_path / "cache"))
    given = CompilerSettings(compilations=4)
    ranker = given.build(0).fit([], [])
    scores = ranker.predict(GRAPH)
    assert scores.shape == (CONFIGS,) and scores.dtype == np.float32
    assert len(np.unique(scores)) > 2
    order = np.random.default_rng(0).permutation(CONFIGS)
    np.testing.assert_allclose(ranker.predict(GRAPH.select(order)), scores[order], atol=1e-5)
    twice = ranker.predict(GRAPH.select(np.array([0, 1, 0, 2, 1])))
    assert twice[0] == twice[2] and twice[1] == twice[4]
    (tmp_path / "model").mkdir()
    save_model(ranker, given, 0, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.settings == given
    np.testing.assert_array_equal(loaded.predict(GRAPH), scores)


def test_a_graph_that_is_no_program_is_ranked_by_copies(capsys: pytest.CaptureFixture[str]) -> None:
    opcodes = GRAPH.node_opcodes.copy()
    opcodes[-1] = OPCODE_IDS["send"]
    graph = dataclasses.replace(GRAPH, node_opcodes=opcodes)
    scores = EXPERIMENT.ranker.build(0).predict(graph)
    np.testing.assert_array_equal(scores, add_known_costs(graph, BACKEND).astype(np.float32))
    said = " ".join(capsys.readouterr().err.split())
    assert "chain: node 6 (send)" in said and "copies" in said


def test_without_the_compiler_there_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"libtpu.*\[tpu\]"):
        EXPERIMENT.ranker.build(0).fit([], [])


@pytest.mark.parametrize(
    "wrong", [{"target": "cpu"}, {"compilations": 0}, {"minutes": 0}], ids=lambda each: [*each][0]
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        CompilerSettings(**wrong)  # type: ignore[arg-type]


def test_rank_says_whose_order_it_is(
    estimator: Estimator, fastslow: FastSlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSLOW_TPU_CACHE", str(tmp_path / "cache"))
    file = modules.write(MODULE, tmp_path / "chain.pb")
    words = ("--target", "tpu:v3", "--compile", "3", "--configs", str(CONFIGS))
    # a program that takes no time by the compiler's estimate
    (tmp_path / "scalar.hlo").write_text(SCALAR)
    assert "estimated by the compiler" in assert_said(fastslow("rank", "scalar.hlo", *words))
    said = assert_said(fastslow("rank", file, *words, "--json", "all.json"))
    assert "asked about 3 of" in said and "estimated by the compiler, never timed" in said
    (found,) = json.loads((tmp_path / "all.json").read_text())
    estimates = [row["estimate"] for row in found["configurations"]]
    known = [value for value in estimates if value is not None]
    assert 3 <= len(known) < CONFIGS
    assert known == sorted(known)
    assert found["measure"] is None
    assert "tpu:v3" in found["reason"]


def test_rank_for_a_tpu_promises_nothing_of_the_cpu(fastslow: FastSlow, tmp_path: Path) -> None:
    file = modules.write(MODULE, tmp_path / "chain.pb")
    words = ("rank", file, "--configs", str(CONFIGS))
    said = assert_said(fastslow(*words, "--target", "tpu:v3", "--json", "all.json"))
    assert "--compile" in said
    assert "Measure the first" not in said and "default bundle" not in said
    # layouts are ranked by the TPU's rules, because no model has learned from one
    (question,) = read_questions(file, None, CONFIGS, None)
    (found,) = json.loads((tmp_path / "all.json").read_text())
    scores = add_known_costs(question.graph, BACKEND)
    order = [row["config"] for row in found["configurations"]]
    assert order == np.argsort(scores.astype(np.float32), kind="stable").tolist()
    assert found["measure"] is None and "copies" in found["reason"]
    # a TPU's compiler takes no tiles, so --compile is not advised for them
    tile = next(file.path for file in find_files(SAMPLE) if file.collection.kind == "tile")
    assert "--compile" not in assert_said(fastslow("rank", tile, "--target", "tpu:v3"))
    # for the CPU that they learned from, the models rank
    plain, cpu = (fastslow(*words, *given) for given in ((), ("--target", "cpu")))
    assert plain.returncode == 0 and plain.stdout.replace("--target cpu", "") == cpu.stdout
    for arguments, words in ((["--compile", "3"], "--target"), (["--target", "tpu:v9"], "tpu:v3"),
                             (["--compile", "3", "--target", "cpu"], "TPU")):  # fmt: skip
        assert words in assert_refused(fastslow("rank", file, *arguments))
