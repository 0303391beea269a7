import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.engines._random import key_of, philox, uniform

# The known-answer file of Random123, philox4x32 with 10 rounds: counter, key, output.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def test_philox_gives_the_published_answers_in_one_batch():
    counters = np.array([words(c) for c, _, _ in KNOWN], np.uint64).T
    keys = np.array([words(k) for _, k, _ in KNOWN], np.uint64).T
    assert np.array(philox(tuple(counters), tuple(keys))).T.tolist() == [words(answer) for _, _, answer in KNOWN]


def test_uniform_is_the_first_53_bits_of_the_block():
    first, second = words(KNOWN[0][2])[:2]
    assert uniform(np.zeros(1, np.uint64), np.zeros(1, np.uint64)).tolist() == [((first << 32 | second) >> 11) / 2**53]


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_uniform_takes_both_halves_of_key_and_counter(key: int, counter: int):
    low = np.uint64(0xFFFFFFFF)
    block = philox(
        tuple(np.array([word], np.uint64) for word in (counter & int(low), counter >> 32, 0, 0)),
        tuple(np.array([word], np.uint64) for word in (key & int(low), key >> 32)),
    )
    draw = uniform(np.array([key], np.uint64), np.array([counter], np.uint64))[0]
    assert draw == (int(block[0][0]) << 32 | int(block[1][0])) // 2**11 / 2**53
    assert 0 <= draw < 1


def test_a_draw_does_not_depend_on_the_others():
    keys, counters = np.arange(1000, dtype=np.uint64), np.arange(1000, dtype=np.uint64) % 7
    together = uniform(keys, counters)
    assert together.dtype == np.float64
    assert together[123:124] == uniform(keys[123:124], counters[123:124])


@pytest.mark.parametrize("vary", ["key", "counter"])
def test_draws_are_uniform_and_uncorrelated(vary: str):
    n = 100_000
    index, zero = np.arange(n, dtype=np.uint64), np.zeros(n, np.uint64)
    draws = uniform(index, zero) if vary == "key" else uniform(zero, index)
    counts = np.histogram(draws, bins=100, range=(0, 1))[0]
    assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 99 + 5 * np.sqrt(2 * 99)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5 / np.sqrt(n)


def test_keys_are_stable_and_tell_parts_apart():
    digest = hashlib.blake2b(b"i1:0s2:rli1:3", digest_size=8).digest()
    assert key_of(0, "rl", 3) == int.from_bytes(digest, "little") == 0xB216FAD2E915A896
    parts = [(1,), ("1",), ("1", ""), ("", "1"), (1, 1), (11,), ("11",), (-1,), (2**70,), (), ("s1:1",), ("ü",)]
    keys = {key_of(*p) for p in parts}
    assert len(keys) == len(parts)
    assert all(0 <= key < 2**64 for key in keys)
