"""Graphs of a notebook's own beside the sample: what is kept aside is never learned from."""

import time
from pathlib import Path

import pytest

from solution.data.folders import SAMPLE, find_files
from solution.domain import predictions
from solution.sessions.added_data import add_to_sample
from solution.sessions.session import Session
from solution.sessions.train_session import Share, train_session
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph


def names(folder: Path) -> set[str]:
    """Of the graphs in it."""
    return {file.name for file in find_files(folder)}


def test_what_was_learned_from_before_does_not_stay(tmp_path: Path) -> None:
    """One that an earlier session added may be kept aside in this one."""
    root, folder = tmp_path / "measured", tmp_path / "data"
    one, other = (
        write_graph(make_layout_graph(number, name=f"mine_{number}"), root) for number in range(2)
    )
    add_to_sample([one, other], root, folder)
    assert names(folder) == names(SAMPLE) | {"mine_0", "mine_1"}
    add_to_sample([one], root, folder)
    assert names(folder) == names(SAMPLE) | {"mine_0"}


def test_other_data_of_a_notebook_is_learned_from_afresh(tmp_path: Path) -> None:
    session = Session(
        "mine", "", tmp_path, tmp_path / "out", tmp_path / "scratch", on_kaggle=False,
        begun=time.monotonic(),
    )  # fmt: skip
    session.output.mkdir()
    share = Share("tile_lightgbm*", "tile:*")
    for last, replace in ((4, False), (3, False), (3, True)):
        data = tmp_path / f"data{last}"
        for number in range(last):
            write_graph(make_tile_graph(number, name=f"kernel{number}"), data)
        if last == 3 and not replace:
            with pytest.raises(InputError):
                train_session(session, share, data=data, num_folds=2, limit=True)
            continue
        trained = train_session(session, share, data=data, num_folds=2, limit=True, replace=replace)
        assert len(predictions.read(trained.run.graphs)) == last
