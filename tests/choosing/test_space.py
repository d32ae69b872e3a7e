"""Spaces: what is drawn, what is near, what is legal."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.choosing.space import draw_new, name_choices
from solution.choosing.table import link_sites
from tests.choosing.made import make_free, make_table


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_what_is_drawn_is_legal_and_differs_from_the_default(seed: int) -> None:
    space = make_free()
    drawn = space.draw(np.random.default_rng(seed), 30)
    assert ((drawn >= 0) & (drawn < space.sizes)).all()
    assert not ((drawn[:, 0] > 0) & (drawn[:, 1] > 0)).any()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_a_neighbour_differs_at_one_or_two_sites(seed: int) -> None:
    generator = np.random.default_rng(seed)
    space = make_free()
    start = space.draw(generator, 20)
    near = space.mutate(generator, start)
    changed = (near != start).sum(axis=1)
    assert set(changed) <= {1, 2}
    assert ((near >= 0) & (near < space.sizes)).all()


def test_sizes_move_by_a_step_or_two() -> None:
    space = make_table(choices=8, ordered=True).space
    generator = np.random.default_rng(0)
    start = np.tile(space.members[0], (50, 1))
    moved = np.abs(space.mutate(generator, start, most=1) - start).max(axis=1)
    assert set(moved) == {1, 2}


def test_the_nearest_member_is_that_of_the_smallest_distance_between_descriptions() -> None:
    space = make_table(ordered=True).space
    asked = space.mutate(np.random.default_rng(0), space.members[:10], most=4)
    allowed = np.arange(len(space.members)) % 3 != 0
    found = space.nearest(asked, allowed)
    own, others = space.describe(asked), space.describe(space.members)
    for row, place in zip(own, found, strict=True):
        distances = ((others - row) ** 2).sum(axis=1)
        assert allowed[place]
        assert distances[place] <= distances[allowed].min() + 1e-4


def test_a_site_that_differs_counts_two() -> None:
    space = make_free()
    first, second = np.zeros((1, 5), int), np.array([[1, 0, 3, 0, 0]])
    assert ((space.describe(first) - space.describe(second)) ** 2).sum() == 4


def test_settings_are_applied_in_turn_where_they_are_legal() -> None:
    space = replace(make_free(), settings=(((4, 1),), ((0, 2),), ((3, 1), (4, 2))))
    assert space.broad == [0, 3, 4]
    assert space.apply(space.settings, space.default[None]).tolist() == [
        [0, 0, 0, 0, 1], [2, 0, 0, 0, 0], [0, 0, 0, 1, 2],
    ]  # fmt: skip
    # With the second site set, the first may not be; what has a setting stays.
    several = np.array([[0, 1, 0, 0, 1], [0, 1, 0, 1, 2]])
    assert space.apply(space.settings, several).tolist() == [
        [0, 1, 0, 1, 1], [0, 1, 0, 1, 2],
    ]  # fmt: skip
    assert space.apply((), several).shape == (0, 5)


def test_a_setting_is_tried_when_one_configuration_has_all_of_it() -> None:
    both, one = ((3, 1), (4, 2)), ((0, 2),)
    space = replace(make_free(), settings=(both, one))
    assert space.find_untried(np.zeros((0, 5), int)) == [both, one]
    assert space.find_untried(np.array([[2, 0, 0, 1, 0], [0, 0, 0, 0, 2]])) == [both]
    assert space.find_untried(np.array([[0, 0, 0, 1, 2]])) == [one]


def test_broad_sites_count_as_much_as_what_else_is_changed_at_random() -> None:
    space = replace(make_free(sites=201), are_legal=None, settings=(((200, 1),),))
    drawn = np.zeros((2000, 201), int)
    drawn[:, :200] = space.draw(np.random.default_rng(0), 2000)[:, :200]
    option = np.eye(1, 201, 200, dtype=int)
    origin = space.describe(space.default[None])
    apart = ((space.describe(drawn) - origin) ** 2).sum(axis=1).mean()
    assert ((space.describe(option) - origin) ** 2).sum() == pytest.approx(apart, rel=0.5)


def test_all_members_are_drawn_before_any_twice() -> None:
    space = make_table().space
    generator = np.random.default_rng(0)
    known: set[str] = set()
    for _ in range(20):
        known |= {name_choices(row) for row in draw_new(space, generator, 3, known)}
    assert known == set(space.names)
    assert not len(draw_new(space, generator, 3, known))


def test_sites_are_linked_where_no_configurable_node_is_between() -> None:
    # 0 -> 1 -> 2 -> 3 -> 4; nodes 0, 2 and 4 are configurable, and 2 has two sites
    edges = np.array([(1, 0), (2, 1), (3, 2), (4, 3)])
    links = link_sites(edges, 5, np.array([0, 2, 4]), np.array([0, 1, 1, 2]))
    assert {tuple(sorted(pair)) for pair in links.tolist()} == {(1, 2), (0, 1), (1, 3)}
