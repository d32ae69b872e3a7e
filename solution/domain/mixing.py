"""Hash numbers to 64 bits, the same on every machine."""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # odd


def mix(values: np.ndarray, number: int = 1) -> np.ndarray:
    """Return a 64-bit hash of each of `values` uint64; every `number` gives another hash function.

    Source: splitmix64, of Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
    2014.
    """
    mixed = values + np.uint64(number * int(GOLDEN) % (1 << 64))
    mixed ^= mixed >> np.uint64(30)
    mixed *= FACTORS[0]
    mixed ^= mixed >> np.uint64(27)
    mixed *= FACTORS[1]
    mixed ^= mixed >> np.uint64(31)
    return mixed
