"""Counter-based random numbers: a draw depends on its key and counter only.

Philox4x32-10: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.3. By numpy;
`posttrain.kernels.uniform` gives the same bits, by a kernel where there is one.
"""

import numpy as np
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def uniform(key_B: UInt64Array, counter_B: UInt64Array) -> NDArray[np.float64]:
    """[B] numbers in [0, 1), one for each pair of key and counter, each a multiple of 2^-53."""
    zeros = np.zeros_like(counter_B)
    first, second, *_ = philox((counter_B & _LOW, counter_B >> _32, zeros, zeros), (key_B & _LOW, key_B >> _32))
    bits = (first << np.uint64(21)) | (second >> np.uint64(11))
    return bits.astype(np.float64) * 2.0**-53


def philox(counter: tuple[UInt64Array, ...], key: tuple[UInt64Array, UInt64Array]) -> tuple[UInt64Array, ...]:
    """Four 32-bit words for each counter of four words and key of two, every word held in a uint64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2  # 32 x 32 bits: never more than 64
        c0, c1, c2, c3 = (right >> _32) ^ c1 ^ k0, right & _LOW, (left >> _32) ^ c3 ^ k1, left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3
