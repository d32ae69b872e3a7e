"""Values that cannot work, or that no record can hold, are refused before anything is asked."""

import math
from typing import get_args

import pytest

from solution.sessions.packing import FOLDS, NOTHING, REFIT
from solution.system.errors import InputError
from solution.training.folds import Scheme
from submissions.kernels.notebooks import (
    PACKS,
    SCHEMES,
    find_notebook,
    list_notebooks,
    parse_values,
)
from tests.kaggle.place import Place
from tests.kaggle.test_kernels import DONE, FAILED, read_pushes, shop

__all__ = ["shop"]  # a fixture

TRAINING, ENSEMBLE = "2-train-layout", "4-ensemble-and-submit"
BROKEN = "EXPERIMENTS=layout_*\udcff"  # a byte that is no text, as Python shows one


@pytest.mark.parametrize("pair", ["HOURS=nan", "HOURS=inf", "HOURS=1e400", BROKEN])
def test_what_no_record_can_hold_is_not_pushed(shop: Place, pair: str) -> None:
    """The records can be read afterwards, and the next push is as any other."""
    done = shop.call("kernels", "push", TRAINING, "--allow-dirty", "--set", pair)
    assert (done.code, "such as" in done.words) == (FAILED, True), done.words
    assert shop.world.calls == []
    assert "never pushed" in shop.call("kernels", "status").words


def test_numbers_and_texts_that_fit_are_recorded(shop: Place) -> None:
    options = ("--set", "HOURS=8", "--set", "FOLDS=0, 1", "--set", "PACK=")
    done = shop.call("kernels", "push", TRAINING, "--allow-dirty", *options)
    assert done.code == DONE, done.words
    latest = read_pushes(shop, TRAINING).latest
    assert latest is not None
    assert latest.values == {"HOURS": 8.0, "FOLDS": "0, 1", "PACK": ""}
    assert math.isfinite(float(latest.values["HOURS"]))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("HOURS=-1", "0 or more"),
        ("NUM_FOLDS=1", "2 or more"),
        ("SCHEME=program", "architecture or graph"),
        ("PACK=all", "folds, refit or nothing"),
        ("FOLDS=0,5", "numbers below NUM_FOLDS"),
        ("FOLDS=first", "numbers below NUM_FOLDS"),
        ("EXPERIMENTS=tiles_*", "layout_gnn_001"),
        ("COLLECTIONS=layout:tpu:*", "layout:xla:random"),
        ("PUSH=mine", "a push writes it"),
        ("COMMIT=mine", "a push writes it"),
    ],
)
def test_what_cannot_work_is_refused_by_name(pair: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as refusal:
        parse_values([pair], find_notebook(TRAINING).read())
    assert pair.partition("=")[0] in str(refusal.value)


def test_folds_are_of_the_number_that_is_given_with_them() -> None:
    found = find_notebook(TRAINING).read()
    assert parse_values(["FOLDS=7", "NUM_FOLDS=8"], found) == {"FOLDS": "7", "NUM_FOLDS": 8}


def test_only_what_can_be_set_is_offered() -> None:
    """A bundle is attached by an option of its own."""
    with pytest.raises(InputError, match="--bundle"):
        parse_values(["BUNDLE=mine"], find_notebook(ENSEMBLE).read())
    with pytest.raises(InputError, match=r"one of RECIPE, SOURCES\."):
        parse_values(["RECEIPT=mine"], find_notebook(ENSEMBLE).read())
    with pytest.raises(InputError, match="no parameter"):
        parse_values(["HOURS=1"], find_notebook("5").read())


def test_what_the_notebooks_have_and_what_they_understand_fits() -> None:
    for notebook in list_notebooks():
        assert parse_values([], notebook.read()) == {}
    assert get_args(Scheme) == SCHEMES
    assert set(PACKS) == {NOTHING, FOLDS, REFIT}
