"""What is true of every search."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.policy_search import PolicySearch, list_compared
from solution.choosing.evolution import grow_region
from solution.choosing.guided import Beliefs, Guided
from solution.choosing.proposer import Proposer
from solution.choosing.replay import TablePrior, replay, replay_seeds
from solution.choosing.space import Space
from solution.choosing.table import Table
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
def test_what_failed_is_never_the_best(method: str) -> None:
    table = make_table()
    proposer = build(method, table)
    for _ in range(6):
        batch = proposer.ask(3)
        times = tell_all(table, batch)
        times[0] = np.nan
        proposer.tell(batch, times)
    assert np.isfinite(proposer.times[proposer.sound]).all()
    assert len(proposer.sound) == np.isfinite(proposer.times).sum() == 12


FREE: dict[str, Callable[[Space], Proposer]] = {
    name: lambda space, name=name: METHODS[name](  # type: ignore[misc]
        Table("free", "layout:xla:random", space, np.zeros(0), np.zeros(0, int)),
        lambda choices: choices.sum(axis=1),  # type: ignore[arg-type]
        0,
    )
    for name in METHODS
}


@pytest.mark.parametrize("method", METHODS)
def test_where_it_may_propose_anything_it_asks_for_what_is_legal_and_new(method: str) -> None:
    space = make_free()
    proposer = FREE[method](space)
    asked: list[str] = []
    for _ in range(6):
        batch = proposer.ask(3)
        assert len(batch) == 3
        assert ((batch >= 0) & (batch < space.sizes)).all()
        assert not ((batch[:, 0] > 0) & (batch[:, 1] > 0)).any()
        asked += names(batch)
        proposer.tell(batch, np.exp(batch.sum(axis=1) / 10))
    assert len(set(asked)) == len(asked)


def test_ours_begins_with_the_best_of_the_prior() -> None:
    table = make_table()
    batch = build("ours", table).ask(1)
    assert tell_all(table, batch)[0] == table.runtimes.min()


def test_ours_tries_what_acts_on_all_of_a_program_first_with_the_fastest_so_far() -> None:
    """An option that halves the time, which few random configurations set."""
    settings = (((38, 1),), ((39, 1),), ((39, 2),))
    space = replace(make_free(sites=40), settings=settings)
    proposer = Guided(space, prior=lambda choices: choices[:, :38].sum(axis=1).astype(float))
    asked = []
    for count in (1, 2, 4):
        asked.append(proposer.ask(count))
        halved, tenth = asked[-1][:, 39] == 2, asked[-1][:, 38] == 1
        factor = np.where(halved, 0.5, 1.0) * np.where(tenth, 0.9, 1.0)
        proposer.tell(asked[-1], 1000 * factor + asked[-1][:, :38].sum(axis=1))
    assert asked[0].tolist() == [[0] * 38 + [1, 0]]
    assert asked[1].tolist() == [[0] * 38 + [1, 1], [0] * 38 + [1, 2]]
    assert (asked[2][:, 39] == 2).sum() >= 3


def test_ours_finds_the_best_although_the_prior_is_upside_down() -> None:
    table = make_table(members=120, sites=5)
    upside_down = -np.log(table.runtimes)
    by_method = {
        name: replay_seeds(table, upside_down, METHODS[name], range(5), 40)[:, 24].mean()
        for name in ("ours", "ours, not online", "random")
    }
    assert by_method["ours"] < by_method["random"] / 2
    assert by_method["ours, not online"] > by_method["random"]


def test_ours_keeps_away_from_where_configurations_fail() -> None:
    """A hidden constraint: whatever has the fastest choice at the first site crashes."""
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


def test_a_batch_is_not_the_neighbours_of_one_guess() -> None:
    """The second of a batch is not simply the second best by the score."""
    table = make_table(members=60, sites=4)
    proposer = build("ours", table)
    first = proposer.ask(1)
    proposer.tell(first, tell_all(table, first))
    batch = proposer.ask(6)
    apart = table.space.describe(batch)
    distances = ((apart[:, None] - apart[None]) ** 2).sum(axis=-1)
    best = table.space.describe(table.space.members[np.argsort(table.runtimes)[1:7]])
    nearest = ((best[:, None] - best[None]) ** 2).sum(axis=-1)
    assert distances.mean() > nearest.mean()


def test_a_region_hangs_together_where_links_allow() -> None:
    space = make_free(sites=9)  # a chain
    for seed in range(30):
        region = np.sort(grow_region(space, np.random.default_rng(seed)))
        assert (np.diff(region) == 1).all()


def test_a_replay_ends_where_the_best_is_found() -> None:
    table = make_table()
    curve = replay(table, build("ours", table), 30)
    assert curve[0] == 0 and not curve.any()
    by_chance = replay(table, build("random", table), 30)
    assert (np.diff(by_chance) <= 0).all()


@pytest.mark.parametrize("fails", [False, True], ids=["twice as fast", "fails"])
def test_a_policy_learns_what_a_choice_does(fails: bool) -> None:
    """One of four choices at one of eight sites, which 6% of random configurations have."""
    space = replace(make_free(sites=8), are_legal=None)
    shares = []
    for seed in range(5):
        search = PolicySearch(space, seed)
        for _ in range(20):
            asked = search.ask(8)
            effect = np.nan if fails else 500.0
            search.tell(asked, np.where(asked[:, 3] == 2, effect, 1000.0))
        shares.append((search.choices[-80:, 3] == 2).mean())
    by_chance = (space.draw(np.random.default_rng(0), 1000)[:, 3] == 2).mean()
    assert np.mean(shares) < by_chance / 2 if fails else np.mean(shares) > 0.6
