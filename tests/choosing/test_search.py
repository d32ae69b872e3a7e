"""The loop: budgets, and a search that is killed and goes on."""

from pathlib import Path

import numpy as np
import pytest

from solution.choosing.journal import RECORD, Journal, Trial
from solution.choosing.replay import TablePrior, list_methods
from solution.choosing.search import Budget, Lookup, search
from solution.choosing.table import Table
from solution.system.errors import InputError
from tests.choosing.made import make_table


class Stopping(Lookup):
    """Is killed after some batches."""

    def __init__(self, table: Table, batches: int) -> None:
        super().__init__(table)
        self.left = batches

    def measure(self, choices: np.ndarray) -> list[Trial]:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().measure(choices)


def run(table: Table, measurer: Lookup, folder: Path, method: str = "ours") -> list[str]:
    prior = TablePrior(table.space, -table.runtimes)
    proposer = list_methods()[method](table, prior, 0)
    journal = Journal.open(folder, {"program": "made"})
    return [t.name for t in search(proposer, measurer, Budget(20, batch=3), journal)]


@pytest.mark.parametrize("method", ["ours", "genetic", "annealing", "tpe"])
@pytest.mark.parametrize("batches", [1, 4])
def test_killed_and_resumed_it_ends_the_same(method: str, batches: int, tmp_path: Path) -> None:
    table = make_table()
    whole = run(table, Lookup(table), tmp_path / "whole", method)
    with pytest.raises(KeyboardInterrupt):
        run(table, Stopping(table, batches), tmp_path / "cut", method)
    resumed = Stopping(table, 7 - batches)  # what was measured is not measured again
    assert run(table, resumed, tmp_path / "cut", method) == whole


def test_it_ends_where_the_budget_is_spent() -> None:
    table = make_table()

    class Slow(Lookup):
        def measure(self, choices: np.ndarray) -> list[Trial]:
            return [Trial(t.name, t.choices, t.nanoseconds, "", 2.0)
                    for t in super().measure(choices)]  # fmt: skip

    build = list_methods()["random"]
    prior = TablePrior(table.space, table.runtimes)
    assert len(search(build(table, prior, 0), Slow(table), Budget(7, batch=3))) == 7
    assert len(search(build(table, prior, 0), Slow(table), Budget(99, seconds=9))) == 5
    assert len(search(build(table, prior, 0), Slow(table), Budget(99))) == 60


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    Journal.open(tmp_path, {"program": "first"}).write()
    with pytest.raises(InputError, match=r"is first, not second\. .*without a seed is another"):
        Journal.open(tmp_path, {"program": "second"})
    Journal.open(tmp_path / "led", {"bundle": "0123456789" * 6}).write()
    with pytest.raises(InputError, match=r"its bundle is (0123456789){4}\.\.\., not none\."):
        Journal.open(tmp_path / "led", {"bundle": None})


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, {"program": "first"})
    journal.trials["a"] = Trial("a", [1, 2], 5.0)
    journal.write()
    path = tmp_path / RECORD
    path.write_text(path.read_text().replace("5.0", "4.0"))
    with pytest.raises(InputError, match=r"damaged\. Choose another --out"):
        Journal.open(tmp_path, {"program": "first"})
