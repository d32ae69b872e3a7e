"""Hashes are those that were published."""

import numpy as np

from solution.domain.mixing import mix


def test_the_numbers_of_splitmix64_from_seed_0() -> None:
    drawn = [int(mix(np.zeros(1, np.uint64), number)[0]) for number in (1, 2)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
