"""A saved model says what it is, is loaded by a table, and is refused where it is damaged."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.experiments.base import find_experiment, list_experiments
from solution.features.preparation import Preparation
from solution.models import catalogue
from solution.models.base import RankerSettings
from solution.models.catalogue import (
    KINDS,
    describe_settings,
    kind_of,
    load_model,
    read_settings,
    save_model,
)
from solution.models.linear import RidgeSettings
from solution.models.nothing import NothingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.papers.wrappers import SublistAverageSettings
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from tests.made.graphs import make_layout_graph, make_tile_graph
from tests.made.places import PlacesSettings

GRAPHS = [make_tile_graph(seed, configs=12, name=f"kernel_{seed}") for seed in range(4)]
TREES = LightGBMSettings(rounds=5, min_data_in_leaf=2)


def save(settings: RankerSettings, folder: Path) -> Path:
    save_model(settings.build(3).fit(GRAPHS[:3], []), settings, 3, folder)
    return folder


@pytest.mark.parametrize("name", list_experiments())
def test_the_settings_of_every_experiment_come_back(name: str) -> None:
    settings = find_experiment(name).ranker
    assert kind_of(settings) in KINDS
    described = json.loads(json.dumps(describe_settings(settings)))
    assert read_settings(described) == settings


def test_every_kind_of_the_table_is_there() -> None:
    for kind in KINDS:
        found = catalogue._find_class(kind, ())
        assert issubclass(found, RankerSettings)
        assert catalogue._PLACES[kind].endswith(found.__qualname__)


def test_a_wrapped_ranker_comes_back_with_what_it_wraps(tmp_path: Path) -> None:
    settings = SublistAverageSettings(TREES, times=2)
    model = load_model(save(settings, tmp_path))
    assert model.settings == settings
    assert model.seed == 3
    expected = settings.build(3).fit(GRAPHS[:3], []).predict(GRAPHS[3])
    np.testing.assert_array_equal(model.predict(GRAPHS[3]), expected)


def test_a_kind_of_the_users_own_needs_the_experiment(tmp_path: Path) -> None:
    save(PlacesSettings(), tmp_path)
    with pytest.raises(InputError, match=r"own:PlacesSettings.*the experiment that it is of"):
        load_model(tmp_path)
    assert load_model(tmp_path, [PlacesSettings()]).settings == PlacesSettings()


@dataclass(frozen=True)
class FolderSettings(NothingSettings):
    """Settings that no file can hold."""

    folder: Path = Path()


def test_settings_that_are_no_plain_values_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(InputError, match="expected settings of plain values"):
        describe_settings(FolderSettings())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "os.system"}, "is not known"),
        ({"kind": None}, "is not known"),
        ({"settings": {}}, "expected the settings"),
        ({"settings": []}, "expected the settings"),
        ({"format": 9}, "has format 9"),
        ({"preparation": {"version": 0, "hops": 1}}, "Train it again"),
        ({"seed": "zero"}, "Train it again"),
        ({"files": {"../secret": "0"}}, "inside its folder"),
        ({"files": {"/etc/passwd": "0"}}, "inside its folder"),
        ({"files": None}, "checksums"),
    ],
)
def test_a_record_of_something_else_is_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save(RidgeSettings(), tmp_path)
    path = tmp_path / catalogue.RECORD
    write_sealed(read_sealed(path, "a model") | change, path)
    with pytest.raises(InputError, match=words):
        load_model(tmp_path)


@pytest.mark.parametrize("settings", [TREES, RidgeSettings()], ids=["trees", "linear"])
def test_no_byte_of_a_model_is_taken_over_damaged(settings: RankerSettings, tmp_path: Path) -> None:
    """A damaged text of trees ends LightGBM with a signal: it must not come so far."""
    save(settings, tmp_path)
    random = np.random.default_rng(0)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(whole)
            damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
            path.write_bytes(damaged)
            if bytes(damaged) != whole:
                with pytest.raises(InputError, match=path.name):
                    load_model(tmp_path)
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match=path.name):
            load_model(tmp_path)
        path.write_bytes(whole)
    load_model(tmp_path)


def test_a_model_prepares_what_it_ranks(tmp_path: Path) -> None:
    """The whole graph, one that keeps two hops and the one it learned from are ranked alike."""
    graphs = [make_layout_graph(seed, configs=10, name=f"p{seed}") for seed in range(4)]
    prepared = [Preparation(1)(graph) for graph in graphs]
    settings = LightGBMSettings(rounds=5, min_data_in_leaf=2)
    save_model(settings.build(0).fit(prepared[:3], []), settings, 0, tmp_path)
    model = load_model(tmp_path)
    expected = model.ranker.predict(prepared[3])
    for graph in (graphs[3], Preparation(2)(graphs[3]), Preparation(None)(graphs[3]), prepared[3]):
        np.testing.assert_array_equal(model.predict(graph), expected)
