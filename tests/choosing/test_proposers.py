"""Properties of every search method, and of the search loop with its journal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.policy_search import list_compared
from benchmarks.replay import list_methods, replay_seeds
from solution.choosing.guided import Beliefs, Guided
from solution.choosing.journal import Journal, Trial
from solution.choosing.offline import Lookup, Table, TablePrior
from solution.choosing.proposer import Proposer
from solution.choosing.search import Budget, search
from tests.choosing.made import make_free, make_table, names, tell_all

METHODS = list_compared()


def build(method: str, table: Table, seed: int = 0) -> Proposer:
    return METHODS[method](table, TablePrior(table.space, np.log(table.runtimes)), seed)


@pytest.mark.parametrize("method", METHODS)
def test_it_asks_for_every_member_once_and_then_for_nothing(method: str) -> None:
    table = make_table(members=25)
    proposer = build(method, table)
    asked: list[str] = []
    while len(batch := proposer.ask(4)):
        assert len(batch) <= 4
        asked += names(batch)
        proposer.tell(batch, tell_all(table, batch))
    assert sorted(asked) == sorted(table.space.names)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_and_answers_give_the_same_search(method: str) -> None:
    table = make_table()
    searches = []
    for _ in range(2):
        proposer, asked = build(method, table, 3), []
        for _ in range(8):
            batch = proposer.ask(2)
            asked += names(batch)
            proposer.tell(batch, tell_all(table, batch))
        searches.append(asked)
    assert searches[0] == searches[1]


@pytest.mark.parametrize("method", METHODS)
def test_failed_configurations_are_not_sound(method: str) -> None:
    table = make_table()
    proposer = build(method, table)
    for _ in range(4):
        batch = proposer.ask(3)
        times = tell_all(table, batch)
        times[0] = np.nan
        proposer.tell(batch, times)
    assert np.isfinite(proposer.times[proposer.sound]).all()
    assert len(proposer.sound) == np.isfinite(proposer.times).sum() == 8


@pytest.mark.parametrize("method", METHODS)
def test_without_a_table_requested_configurations_are_legal_and_new(method: str) -> None:
    space = make_free()
    free = Table("free", "layout:xla:random", space, np.zeros(0), np.zeros(0, int))
    proposer = METHODS[method](free, lambda configs: configs.sum(axis=1), 0)  # type: ignore[arg-type]
    asked: list[str] = []
    for _ in range(6):
        batch = proposer.ask(3)
        assert len(batch) == 3
        assert ((batch >= 0) & (batch < space.sizes)).all()
        assert not ((batch[:, 0] > 0) & (batch[:, 1] > 0)).any()
        asked += names(batch)
        proposer.tell(batch, np.exp(batch.sum(axis=1) / 10))
    assert len(set(asked)) == len(asked)


def test_ours_tries_settings_of_the_whole_program_first_with_the_fastest_so_far() -> None:
    """One option halves the time, and few random configurations set it."""
    settings = (((38, 1),), ((39, 1),), ((39, 2),))
    space = replace(make_free(sites=40), settings=settings)
    proposer = Guided(space, prior=lambda configs: configs[:, :38].sum(axis=1).astype(float))
    asked = []
    for count in (1, 2, 4):
        batch = proposer.ask(count)
        factor = np.where(batch[:, 39] == 2, 0.5, 1.0) * np.where(batch[:, 38] == 1, 0.9, 1.0)
        proposer.tell(batch, 1000 * factor + batch[:, :38].sum(axis=1))
        asked.append(batch)
    assert asked[0].tolist() == [[0] * 38 + [1, 0]]
    assert asked[1].tolist() == [[0] * 38 + [1, 1], [0] * 38 + [1, 2]]
    assert (asked[2][:, 39] == 2).sum() >= 2  # of four values


def test_where_the_scores_tell_much_settings_are_every_second_one() -> None:
    settings = tuple(((39, value),) for value in (1, 2, 3))
    space = replace(make_free(sites=40), settings=settings)
    proposer = Guided(
        space, 0, lambda row: row[:, :39].sum(axis=1).astype(float), Beliefs("copies")
    )
    proposer.tell(space.default[None], np.array([1000.0]))
    asked = proposer.ask(4)
    alone = (asked[:, :39] == 0).all(axis=1) & (asked[:, 39] > 0)
    assert alone.sum() == 2


def test_no_program_is_compiled_twice_before_all_are_tried() -> None:
    """The first two sites decide the program; they cannot both be set, so there are five."""
    space = make_free(sites=6, choices=3)
    known = Beliefs("copies", 0.5, lambda configs: [row[:2].tobytes() for row in configs])
    proposer = Guided(space, 0, lambda configs: configs[:, 0].astype(float), known)
    programs = []
    for _ in range(5):
        asked = proposer.ask(1)
        programs.append(asked[0, :2].tobytes())
        proposer.tell(asked, 1000.0 + asked[:, 0] + asked[:, 1])
    assert len(set(programs)) == 5


def test_an_option_without_effect_is_not_combined_and_three_values_settle_it() -> None:
    """Estimates are exact, so an option that changes nothing is seen to. The first sites are
    layouts, the third one an option without effect, the fourth one an option with one."""
    settings = (*(((2, value),) for value in range(1, 9)), ((3, 1),), ((3, 2),))
    space = replace(make_free(sites=4, choices=9), settings=settings)
    proposer = Guided(space)
    proposer.tell(space.default[None], np.array([100.0]))
    for _ in range(12):
        asked = proposer.ask(2)
        proposer.tell(asked, 100.0 + 3 * asked[:, 0] + 7 * (asked[:, 3] == 1))
    idle = proposer.configs[:, 2] > 0
    assert 3 <= idle.sum() <= 4  # they are compiled in pairs
    assert not (proposer.configs[idle, :2] > 0).any()
    assert set(proposer.configs[:, 3].tolist()) >= {1, 2}


def test_ours_finds_the_best_although_the_prior_is_upside_down() -> None:
    table = make_table(members=120, sites=5)
    upside_down = -np.log(table.runtimes)
    by_method = {
        name: replay_seeds(table, upside_down, METHODS[name], range(5), 40)[:, 24].mean()
        for name in ("ours", "ours, not online", "random")
    }
    assert by_method["ours"] < by_method["random"] / 2
    assert by_method["ours, not online"] > by_method["random"]


def test_ours_learns_which_configurations_fail() -> None:
    """Hidden constraint: all configurations with the fastest choice at the first site crash."""
    table = make_table(members=150, sites=4)
    fails = table.space.members[:, 0] == 0
    failing = set(np.array(table.space.names)[fails])

    def count(proposer: Proposer) -> int:
        failed = 0
        for _ in range(40):
            batch = proposer.ask(1)
            crashed = names(batch)[0] in failing
            failed += crashed
            proposer.tell(batch, np.array([np.nan]) if crashed else tell_all(table, batch))
        return failed

    class Careless(Guided):
        def _works(self, columns: np.ndarray) -> np.ndarray:
            return np.ones(len(columns))

    def mean(kind: type[Guided]) -> float:
        searches = [count(kind(table.space, seed, None, Beliefs("tile"))) for seed in range(4)]
        return float(np.mean(searches))

    assert mean(Guided) < mean(Careless) / 2


class Stopping(Lookup):
    """Raises KeyboardInterrupt after some batches."""

    def __init__(self, table: Table, batches: int) -> None:
        super().__init__(table)
        self.left = batches

    def measure(self, configs: np.ndarray) -> list[Trial]:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().measure(configs)


def run(table: Table, measurer: Lookup, folder: Path, method: str = "ours") -> list[str]:
    prior = TablePrior(table.space, -table.runtimes)
    proposer = list_methods()[method](table, prior, 0)
    journal = Journal.open(folder, {"program": "made"})
    return [t.name for t in search(proposer, measurer, Budget(20, batch=3), journal)]


@pytest.mark.parametrize("method", ["ours", "annealing", "tpe"])
def test_a_killed_search_resumes_to_the_same_result(method: str, tmp_path: Path) -> None:
    table = make_table()
    whole = run(table, Lookup(table), tmp_path / "whole", method)
    with pytest.raises(KeyboardInterrupt):
        run(table, Stopping(table, 4), tmp_path / "cut", method)
    resumed = Stopping(table, 3)  # 7 batches in all: nothing is measured twice
    assert run(table, resumed, tmp_path / "cut", method) == whole


def test_a_search_ends_when_its_budget_is_spent() -> None:
    table = make_table()

    class Slow(Lookup):
        def measure(self, configs: np.ndarray) -> list[Trial]:
            return [replace(trial, seconds=2.0) for trial in super().measure(configs)]

    build = list_methods()["random"]
    prior = TablePrior(table.space, table.runtimes)
    assert len(search(build(table, prior, 0), Slow(table), Budget(7, batch=3))) == 7
    assert len(search(build(table, prior, 0), Slow(table), Budget(99, seconds=9))) == 5
    assert len(search(build(table, prior, 0), Slow(table), Budget(99))) == 60
