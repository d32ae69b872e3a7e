"""In which order to measure: down the ranking, or by turns from along all of it.

Most programs are ranked well, and the first few of the order hold one of the best. A few are ranked
wrongly, and there the best may stand anywhere: whoever follows the order alone finds it late. So of
the configurations that are measured a share may be taken from along the order: its middle, its
quarters, its eighths and so on. Which share needs the fewest measurements is seen out of fold, by
collection; it is 0 where the order is good.

Source: of the sequence, van der Corput, "Verteilungsfunktionen", 1935.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from solution.serving.calibration import CONFIDENCE, REGRET, Learned
from solution.serving.record import Program

SHARES = (0.0, 0.25, 0.5)


def explore(order: np.ndarray, share: float) -> np.ndarray:
    """The positions `order` (configs,) as they are measured: (configs,), each of them once.

    Args:
        share: of those that are taken from along the order: 0, or at least 0.01 and at most 0.5.
    """
    if not share:
        return order
    place, every = np.arange(len(order)), round(1 / share)
    # Every configuration has two turns, the one that its place gives it and one from along the
    # order, and takes the earlier.
    along = np.empty_like(place)
    along[spread_out(len(order))] = every * (place + 1) - 1
    turn = np.minimum(place + place // (every - 1), along)
    return order[np.argsort(turn, kind="stable")]


def spread_out(count: int) -> np.ndarray:
    """The numbers 0 ... count - 1, each early one far from those before it; last comes 0."""
    bits = max(1, (count - 1).bit_length())
    number = np.roll(np.arange(1 << bits), -1)
    turned = np.zeros_like(number)
    for bit in range(bits):
        turned |= (number >> bit & 1) << (bits - 1 - bit)
    return turned[turned < count]


def choose_shares(programs: Mapping[float, Mapping[str, Sequence[Program]]]) -> dict[str, float]:
    """By collection the share with which fewest have to be measured; collections of 0 are left out.

    Args:
        programs: by share and collection, those whose steps are of an order with that share.
    """
    chosen = {
        name: choose_share({share: Learned(own[name]) for share, own in programs.items()})
        for name in programs[SHARES[0]]
    }
    return {name: share for name, share in chosen.items() if share}


def choose_share(learned: Mapping[float, Learned]) -> float:
    """The one with the smallest k for the usual promise; of equal ones, and of none, the least."""
    found = {share: own.quantile(REGRET, CONFIDENCE) for share, own in learned.items()}
    promised = [share for share, k in found.items() if k is not None]
    return min(promised, key=lambda share: (found[share], share), default=SHARES[0])
