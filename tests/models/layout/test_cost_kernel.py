"""The kernel of costs: its covariance, its one solution, and what it learns of made labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from solution.domain.graph import Graph
from solution.features.nodes import Scaler, fit_scaler
from solution.features.propagation import state_table
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.state_table import BYTES, FEATURES, state_tables
from solution.models.base import BACKEND_FILE, CostRanker
from solution.models.catalogue import load_model, save_model
from solution.models.layout import known_costs
from solution.models.layout.cost_kernel import (
    ARGUMENT,
    FARTHEST,
    MAKING,
    OPCODE,
    Cosines,
    CostKernelRanker,
    CostKernelSettings,
)
from solution.models.layout.cost_net import CostNetSettings
from solution.models.layout.known_costs import (
    LEAST,
    PARAMETER,
    CostSettings,
    add_known_costs,
    choose_predicted,
    share_tables,
    weigh_states,
)
from solution.models.nets.training_settings import TrainingSettings
from solution.models.sampling import TrainingRows
from solution.system.errors import InputError
from solution.system.shelf import keeping
from tests.features.propagation.drawn import draw_graph
from tests.made.costs import label, label_by_copies, sum_costs
from tests.made.graphs import make_layout_graph

GRAPHS = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(5)]
DRAWN = [draw_graph(seed, configs=24) for seed in range(40)]
ROW_MAJOR = [feature.name for feature in FEATURES].index("state_made_row_major")
NO_COSTS = CostKernelSettings(backend="cpu", cosines=16, penalty=1e12)


def opcodes_of(graph: Graph) -> list[int]:
    """Of the nodes, and -1 for what is no node's."""
    return [*graph.node_opcodes.tolist(), -1]


def test_what_a_state_and_another_have_in_common_falls_with_their_distance() -> None:
    """Gaussian in standardised columns, times a factor for each opcode in which they differ."""
    graph = GRAPHS[0]
    table, opcodes = state_tables("cpu")(graph), opcodes_of(graph)
    scaler = fit_scaler([table.features])
    found = Cosines.draw(scaler, 4096, seed=0)(graph, table, slice(None))
    columns = np.clip(scaler(table.features), -FARTHEST, FARTHEST)
    pairs = np.random.default_rng(0).integers(len(columns), size=(200, 2))
    for one, other in [*pairs.tolist(), (0, 0)]:
        distance = np.mean((columns[one] - columns[other]) ** 2)
        for whose in (table.node, table.reader):
            differ = opcodes[whose[one]] != opcodes[whose[other]]
            distance += 2 * OPCODE**2 * differ
        assert found[one] @ found[other] == pytest.approx(np.exp(-distance / 2), abs=0.08)


def add_up(ranker: CostKernelRanker, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """What is known and learned of each configuration, one place after another."""
    table = state_tables("cpu")(graph)
    assert ranker.cosines_ is not None
    cosines = ranker.cosines_(graph, table, slice(None))
    known = weigh_states(graph, table)
    sums, columns, moved = [], [], []
    for numbers in table.numbers:
        row, total, copied = np.zeros(2 * cosines.shape[1] + 1), 0.0, 0.0
        for state in numbers:
            cost = known.copying[state] + known.slowed[state]
            total += cost - known.spared[state]
            copied += known.moved[state]
            row[: cosines.shape[1]] += cost * cosines[state]
            row[cosines.shape[1] : -1] += MAKING * known.made[state] * cosines[state]
            row[-1] += ARGUMENT * known.arguments[state]
        sums.append(total)
        columns.append(row)
        moved.append(copied)
    scale = max(np.std(moved), LEAST)
    return (
        (np.array(sums) - np.mean(sums)) / scale,
        (np.array(columns) - np.mean(columns, axis=0)) / scale,
    )


@pytest.mark.parametrize("own", [0.0, 0.5, 4.0])
def test_weights_are_those_of_a_ridge_regression_with_weights_of_each_program(own: float) -> None:
    """Of what is left of the labels, each program's configurations together counting as one.

    Beside the columns that all programs share, each has the same once more for itself, but that of
    arguments, as much larger as its own weights are penalised less.
    """
    settings = CostKernelSettings(backend="cpu", cosines=24, penalty=1e-3, own=own)
    ranker = settings.build(3).fit(GRAPHS[:3], GRAPHS[3:])
    alpha, size = settings.penalty * len(GRAPHS), 2 * 24 + 1
    rows, labels, weights = [], [], []
    for place, graph in enumerate(GRAPHS, start=1):
        known, columns = add_up(ranker, graph)
        runtimes = np.log(graph.distinct.mean(graph.runtimes))
        label = np.clip((runtimes - runtimes.mean()) / runtimes.std(), -3, 3)
        slope = max(0.05, np.dot(known, label) / max(np.dot(known, known), LEAST))
        row = np.zeros((len(label), size * (len(GRAPHS) + 1)))
        row[:, :size] = slope * columns
        own_times = np.sqrt(alpha * own * len(label))
        row[:, place * size : (place + 1) * size - 1] = own_times * slope * columns[:, :-1]
        rows.append(row)
        labels.append(label - slope * known)
        weights.append(np.full(len(label), 1 / len(label)))
    expected = Ridge(alpha=alpha, fit_intercept=False, solver="cholesky")
    expected.fit(np.concatenate(rows), np.concatenate(labels), np.concatenate(weights))
    np.testing.assert_allclose(ranker.weights_, expected.coef_[:size], rtol=1e-5, atol=1e-6)


def test_a_score_is_the_sum_of_what_is_known_and_learned() -> None:
    ranker = CostKernelSettings(backend="cpu", cosines=24).build(0).fit(GRAPHS[:3], [])
    for graph in GRAPHS[3:]:
        known, columns = add_up(ranker, graph)
        expected = (known + columns @ ranker.weights_)[graph.distinct.inverse]
        scores = ranker.predict(graph).astype(np.float64)
        assert np.corrcoef(scores, expected)[0, 1] == pytest.approx(1, abs=1e-6)
        sums = sum_costs(graph, ranker.list_costs(graph))
        np.testing.assert_allclose(sums, scores, atol=1e-6)


def test_where_nothing_is_learned_what_is_known_decides() -> None:
    ranker, compared = NO_COSTS.build(0).fit(GRAPHS[:2], []), 0
    for graph in (*GRAPHS, *DRAWN):
        known = weigh_states(graph, state_tables("cpu")(graph))
        sums = sum_costs(graph, known.copying + known.slowed - known.spared)
        np.testing.assert_allclose(ranker.predict(graph), sums, atol=1e-5)
        compared += sums.std() > 0
    assert compared > 20


def measure(ranker: CostKernelRanker, graphs: list[Graph]) -> float:
    """The mean correlation of scores with runtimes."""
    moving = [graph for graph in graphs if graph.runtimes.std() > 0]
    assert len(moving) >= 3
    found = [np.corrcoef(ranker.predict(graph), graph.runtimes)[0, 1] for graph in moving]
    return float(np.mean(found))


@pytest.mark.parametrize("times", [0.0, 1.0])
def test_what_copies_of_arguments_cost_is_learned(times: float) -> None:
    """Some who call a program hand it arguments in the layouts that it asks for."""
    graphs = [label_by_copies(graph, times) for graph in DRAWN]
    others = [label_by_copies(graph, 1 - times) for graph in DRAWN]
    ranker = CostKernelSettings(backend="cpu", cosines=64).build(0).fit(graphs[:28], [])
    assert measure(ranker, graphs[28:]) > 0.9
    assert measure(ranker, graphs[28:]) > measure(ranker, others[28:]) + 0.05


def test_what_nobody_knew_is_learned() -> None:
    """That copies into one layout are expensive, others free; and instructions in another."""

    def cost(graph: Graph) -> np.ndarray:
        table = state_tables("cpu")(graph)
        known = weigh_states(graph, table)
        is_row_major = table.features[:, ROW_MAJOR] > 0
        return known.copying * is_row_major + 0.1 * known.made * ~is_row_major

    graphs = [label(graph, cost(graph)) for graph in DRAWN]
    learned = CostKernelSettings(backend="cpu", cosines=256).build(0).fit(graphs[:28], [])
    assert measure(learned, graphs[28:]) > measure(NO_COSTS.build(0).fit(graphs, []), graphs[28:])
    assert measure(learned, graphs[28:]) > 0.8


def test_shares_of_what_is_known() -> None:
    """Copies of arguments and of other tensors, and instructions, are told apart."""
    seen = np.zeros(3, bool)
    for graph in DRAWN:
        table = state_tables("cpu")(graph)
        known, opcodes = weigh_states(graph, table), opcodes_of(graph)
        made = set(table.numbers[:, : table.instructions].ravel().tolist())
        for state in range(len(table.node)):
            share = table.shares[state, BYTES] * bool(table.is_copied[state])
            is_argument = opcodes[table.node[state]] == PARAMETER
            cost = share * (1 + 0.3 * table.strides[state])
            assert known.moved[state] == pytest.approx(0 if is_argument else share)
            assert known.copying[state] == pytest.approx(0 if is_argument else cost)
            assert known.arguments[state] == pytest.approx(cost if is_argument else 0)
            assert (known.made[state] > 0) == (state in made)
            seen |= [share > 0 and is_argument, share > 0 and not is_argument, state in made]
    assert seen.all()


@pytest.mark.parametrize("wrong", [
    {"cosines": 0}, {"cosines": 10**6}, {"penalty": -1.0}, {"own": -1.0}, {"backend": "gpu"},
    {"max_configs": 1},
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        CostKernelSettings(**wrong)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("settings", [
    CostKernelSettings(cosines=16),
    CostNetSettings(width=8, training=TrainingSettings(epochs=1, configs_per_graph=8)),
], ids=("kernel", "net"))  # fmt: skip
def test_runtimes_tell_the_backend_and_a_model_remembers_it(
    settings: CostSettings, backend: str, tmp_path: Path
) -> None:
    """By default the rules are those whose prior costs order the training runtimes."""
    graphs = [
        replace(graph, runtimes=np.exp(add_known_costs(graph, backend)))
        for graph in (*GRAPHS, *DRAWN[:8])
    ]
    ranker = settings.build(0).fit(graphs, [])
    told = replace(settings, backend=backend).build(0).fit(graphs, [])
    assert isinstance(ranker, CostRanker) and isinstance(told, CostRanker)
    assert ranker.backend == told.backend == backend
    save_model(ranker, settings, 0, tmp_path)
    loaded = load_model(tmp_path).ranker
    for graph in DRAWN:
        np.testing.assert_array_equal(loaded.predict(graph), told.predict(graph))
    for wrong in (b"gpu", b"\xff"):
        (tmp_path / BACKEND_FILE).write_bytes(wrong)
        with pytest.raises(InputError, match=f"{BACKEND_FILE}.*cpu or tpu"):
            settings.build(0).load(tmp_path)
    (tmp_path / BACKEND_FILE).unlink()  # as in models of earlier versions, whose settings name it
    older = replace(settings, backend=backend).build(0).load(tmp_path)
    np.testing.assert_array_equal(older.predict(DRAWN[0]), told.predict(DRAWN[0]))


def test_columns_that_never_vary_say_nothing() -> None:
    graph = GRAPHS[0]
    table = state_tables("cpu")(graph)
    nothing = Scaler(np.zeros(len(FEATURES), np.float32), np.zeros(len(FEATURES), np.float32))
    found = Cosines.draw(nothing, 8, seed=0)(graph, table, slice(None))
    opcodes = opcodes_of(graph)
    by_opcodes: dict[tuple[int, int], np.ndarray] = {}
    for state, row in enumerate(found):
        key = opcodes[table.node[state]], opcodes[table.reader[state]]
        np.testing.assert_array_equal(by_opcodes.setdefault(key, row), row)


def test_each_process_computes_shared_tables_in_its_own_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So several that need the same tables at once compute different ones."""
    monkeypatch.setenv("FASTSLOW_TABLES", str(tmp_path))
    for module in (known_costs, state_table):
        monkeypatch.setattr(module, "MANY", 1)
    graphs = [make_layout_graph(number, name=f"p{number}") for number in range(8)]
    orders: list[list[str]] = []

    def choose(graph: Graph, limit: int | None) -> TrainingRows:
        orders[-1].append(graph.name)
        return choose_predicted(graph, limit)

    monkeypatch.setattr(known_costs, "choose_predicted", choose)
    for process in (1, 2):
        orders.append([])
        monkeypatch.setattr(known_costs.os, "getpid", lambda number=process: number)
        with keeping("version"):
            share_tables(graphs, 5, "tpu")
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == [graph.name for graph in graphs]
    assert len(list(tmp_path.rglob("*.npz"))) == len(graphs)
    share_tables(graphs, 5, "tpu")  # where nothing is kept, nothing is computed before it is needed
    assert len(orders[1]) == len(graphs)
