"""Pushes that are stopped while they wait, and what is refused before anything is asked."""

from tests.kaggle.place import Place
from tests.kaggle.test_kernels import DATASET, DONE, FAILED, push, shop

__all__ = ["shop"]  # a fixture


def test_a_dataset_that_is_processed_for_long_is_uploaded_once(shop: Place) -> None:
    """The same command goes on with the wait."""
    shop.more["FASTSLOW_READY_SECONDS"] = "0.01"
    shop.world.processing = 9
    for _ in range(2):
        done = push(shop)
        assert (done.code, "it goes on from here" in done.words) == (FAILED, True), done.words
    shop.world.processing = 1
    shop.more["FASTSLOW_READY_SECONDS"] = "60"
    done = push(shop)
    assert done.code == DONE, done.words
    assert len(shop.world.datasets[DATASET]) == 1
