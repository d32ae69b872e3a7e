"""What is merged of one graph as arrays is what its frames are merged to."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensembles.merge import merge, normalise
from ensembles.votes import METHODS, Method, merge_votes, rank
from solution.domain.predictions import make_frame
from tests.ensembles.test_rank_average import slow_rank

Votes = dict[str, list[list[int]]]


@st.composite
def drawn_votes(draw: st.DrawFn) -> Votes:
    """By member, the scores of its models; few values, so that many are equal."""
    configs = draw(st.integers(1, 12))
    scores = st.lists(st.integers(-3, 3), min_size=configs, max_size=configs)
    return {
        name: draw(st.lists(scores, min_size=1, max_size=4))
        for name in draw(st.sets(st.sampled_from("abc"), min_size=1))
    }


@pytest.mark.parametrize("method", METHODS)
@given(drawn_votes(), st.lists(st.integers(1, 5), min_size=3, max_size=3))
@settings(max_examples=40, deadline=None)
def test_arrays_are_merged_as_frames_are(method: Method, drawn: Votes, sizes: list[int]) -> None:
    weights = dict(zip("abc", map(float, sizes), strict=True))
    votes = {name: [np.array(own, np.float32) / 7 for own in drawn[name]] for name in drawn}
    frames = {}
    for name, own in votes.items():
        places = np.arange(len(own[0]))
        models = [make_frame(("c", "g"), places, scores, k, 0) for k, scores in enumerate(own)]
        frames[name] = normalise(pl.concat(models), method)
    expected = merge(frames, weights, method)["score"].to_numpy()
    found = merge_votes(votes, weights, method)
    assert found.dtype == np.float32
    if method == "z_score":  # means are added up in another order
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found.tobytes() == expected.tobytes()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_are_those_of_counting(values: list[int]) -> None:
    shares = [float(slow_rank(values, config)) for config in range(len(values))]
    np.testing.assert_allclose(rank(np.array(values)), np.array(shares) * len(values))
