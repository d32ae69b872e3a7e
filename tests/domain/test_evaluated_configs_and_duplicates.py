"""The fixed choice of predicted configurations, and the search for identical ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from solution.domain.duplicates import Distinct, deduplicate
from solution.domain.evaluated_configs import MAX_CONFIGS, choose_configs

KEYS = [("layout:xla:random", "unet"), ("layout:xla:default", "unet"), ("tile:xla", "unet")]
keys = st.tuples(st.sampled_from(["layout:nlp:random", "tile:xla"]), st.text(max_size=8))

layouts = arrays.arrays(
    np.int8,
    st.tuples(st.integers(1, 30), st.integers(0, 2), st.just(2)),
    elements=st.integers(0, 1),
)
tiles = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 30), st.just(3)),
    elements=st.sampled_from([0.0, 1.0, 2.5]),
)


def test_the_official_protocol_has_a_thousand_configurations() -> None:
    assert MAX_CONFIGS == 1000
    assert len(choose_configs(KEYS[0], 1001)) == 1000


@given(keys, st.integers(0, 60), st.integers(1, 60))
def test_choice_is_sorted_unique_and_in_range(
    key: tuple[str, str], num_configs: int, limit: int
) -> None:
    chosen = choose_configs(key, num_configs, limit)
    assert len(chosen) == min(num_configs, limit)
    assert (np.diff(chosen) > 0).all()
    assert ((chosen >= 0) & (chosen < num_configs)).all()


@given(keys, st.integers(0, 60), st.integers(0, 40))
def test_small_graphs_are_predicted_whole(
    key: tuple[str, str], num_configs: int, more: int
) -> None:
    assert choose_configs(key, num_configs, num_configs + more).tolist() == list(range(num_configs))


def test_choice_does_not_depend_on_other_calls_or_the_global_seed() -> None:
    forward = [choose_configs(key, 5000).tolist() for key in KEYS]
    np.random.seed(1)
    backward = [choose_configs(key, 5000).tolist() for key in reversed(KEYS)]
    assert forward == backward[::-1]


def test_choice_differs_between_graphs_and_between_collections() -> None:
    others = [*KEYS, ("tile:xla", "resnet")]
    assert len({choose_configs(key, 5000).tobytes() for key in others}) == len(others)


def test_choice_is_the_one_that_saved_predictions_were_made_for() -> None:
    assert choose_configs(KEYS[0], 100_000, 5).tolist() == [1729, 21886, 33326, 41922, 44252]
    assert choose_configs(KEYS[0], 5000).sum() == 2_447_924


def test_every_configuration_may_be_chosen() -> None:
    chosen = [choose_configs(("tile:xla", f"kernel-{i}"), 20, 5) for i in range(200)]
    counts = np.bincount(np.concatenate(chosen), minlength=20)
    assert counts.min() > 20  # 50 are expected of each
    assert counts.max() < 90


def assert_groups_equal_rows(configs: np.ndarray) -> None:
    found = deduplicate(configs)
    flat = configs.reshape(len(configs), -1)
    expected = len(np.unique(flat, axis=0)) if flat.shape[1] else 1
    assert len(found.first) == expected
    assert np.array_equal(configs[found.first][found.inverse], configs)
    rows = flat.tolist()
    assert found.first.tolist() == [i for i, row in enumerate(rows) if row not in rows[:i]]


@settings(deadline=None)
@given(layouts)
def test_distinct_layouts_are_those_of_numpy_in_order_of_appearance(configs: np.ndarray) -> None:
    assert_groups_equal_rows(configs)


@settings(deadline=None)
@given(tiles)
def test_distinct_tiles_are_those_of_numpy_in_order_of_appearance(configs: np.ndarray) -> None:
    assert_groups_equal_rows(configs)


@given(layouts)
def test_order_in_memory_does_not_matter(configs: np.ndarray) -> None:
    left, right = deduplicate(configs), deduplicate(np.asfortranarray(configs))
    assert np.array_equal(left.first, right.first)
    assert np.array_equal(left.inverse, right.inverse)


@settings(deadline=None)
@given(layouts, st.integers(0, 100))
def test_mean_is_the_average_over_identical_configurations(configs: np.ndarray, seed: int) -> None:
    found = deduplicate(configs)
    values = np.random.default_rng(seed).normal(size=len(configs)) * 1e6
    expected = []
    for first in found.first:
        same = [
            value
            for value, config in zip(values, configs, strict=True)
            if np.array_equal(config, configs[first])
        ]
        expected.append(sum(same) / len(same))
    assert found.mean(values) == pytest.approx(expected)


def test_mean_of_distinct_configurations_is_the_values() -> None:
    found = Distinct(first=np.arange(3), inverse=np.arange(3))
    assert found.mean(np.array([3.0, 1.0, 2.0])).tolist() == [3, 1, 2]
