"""The tree of pages that stay, and what a cache makes of it."""

import random

import numpy as np
import pytest
import torch

from posttrain import kernels
from posttrain.kernels import PAGE, PackedLayout
from posttrain.policies._cache import KeyValueCache
from posttrain.policies._kept_prefixes import KeptPrefixes
from posttrain.types import IntArray
from tests.kernels import needs_kernels
from tests.policies.test_cache import append, cache_of, held_by


def counting(*parts: int | range) -> IntArray:
    return np.concatenate([[p] if isinstance(p, int) else np.array(p) for p in parts]).astype(np.int64)


def test_the_longest_prefix_is_found_also_within_a_page() -> None:
    kept = KeptPrefixes(100)
    assert kept.keep(counting(range(40)), [7, 8, 9]) == ([7, 8, 9], [])
    assert kept.find(counting(range(60)), 60) == ([7, 8, 9], 40)
    assert kept.find(counting(range(60)), 39) == ([7, 8, 9], 39), "as many as are wanted"
    assert kept.find(counting(range(60)), 32) == ([7, 8], 32)
    assert kept.find(counting(range(20), range(90, 120)), 50) == ([7, 8], 20), "another thought in the middle"
    assert kept.find(counting(range(PAGE - 1), 99, range(30)), 40) == ([], 0), "too short"
    assert kept.find(counting(5, range(40)), 40) == ([], 0)


def test_what_is_there_is_not_kept_twice_and_longer_pages_take_the_place_of_parts() -> None:
    kept = KeptPrefixes(100)
    kept.keep(counting(range(40)), [1, 2, 3])
    assert kept.keep(counting(range(36)), [1, 2, 4]) == ([], []), "a prefix of a page that is there"
    assert kept.keep(counting(range(45)), [1, 2, 5]) == ([5], [3])
    assert kept.keep(counting(range(70)), [1, 2, 6, 7, 8]) == ([6, 7, 8], [5])
    assert kept.keep(counting(range(40), 0), [1, 2, 9]) == ([9], []), "another end"
    assert len(kept) == 6 and sorted(kept.clear()) == [1, 2, 6, 7, 8, 9] and len(kept) == 0


def test_those_not_used_for_longest_go_first_and_a_page_after_those_that_follow_it() -> None:
    kept = KeptPrefixes(4)
    kept.keep(counting(range(32)), [0, 1])
    kept.keep(counting(range(100, 132)), [2, 3])
    assert kept.find(counting(range(33)), 33) == ([0, 1], 32)
    assert kept.keep(counting(range(200, 216)), [4]) == ([4], [3]), "the end of the other"
    assert kept.keep(counting(range(300, 332)), [5, 6]) == ([5, 6], [2, 1])
    assert kept.dropped == 3
    assert kept.find(counting(range(33)), 33) == ([0], 16)
    assert kept.keep(counting(range(400, 500)), [10, 11, 12, 13, 14, 15, 16])[1] == [4, 6, 5, 0, 16, 15, 14]
    nothing = KeptPrefixes(0)
    assert nothing.keep(counting(range(32)), [0, 1]) == ([0, 1], [1, 0]) and len(nothing) == 0


@pytest.mark.parametrize("most", [3, 12, 1000])
def test_whatever_is_kept_what_is_found_was_written(most: int) -> None:
    """Sequences that begin alike, in any order: slots get the numbers that belong to their tokens, and no page is
    lost.
    """
    rng, cache = random.Random(most), cache_of(4)
    cache.keep_prefixes(most * cache.page_bytes)

    def numbers(token_ids: IntArray) -> torch.Tensor:  # of the tokens before, as keys are
        return torch.from_numpy(np.cumsum(token_ids)[:, None, None] * np.ones((1, 3, 4))).float()

    found = 0
    for _ in range(300):
        slot = rng.randrange(4)
        cache.release(slot)
        ids = counting(*(range(rng.choice((0, 7))) for _ in range(rng.randrange(8))), range(rng.randrange(1, 40)))
        [taken] = cache.begin([(slot, ids, len(ids) - 1)])
        assert taken == cache.lengths[slot] < len(ids)
        found += taken > 0
        append(cache, slot, numbers(ids)[taken:])
        for layer in (0, 1):
            key, value = held_by(cache, slot, layer)
            torch.testing.assert_close(key, numbers(ids) + layer, atol=0, rtol=0)
            torch.testing.assert_close(value, 2 * numbers(ids) + layer, atol=0, rtol=0)
        if rng.random() < 0.8:
            cache.keep(slot, ids[: rng.randrange(1, len(ids) + 1)])
        assert len(cache.kept) <= most
    assert found > 20
    for slot in range(4):
        cache.release(slot)
    assert cache.pages == len(cache.kept)
    cache.forget()
    assert cache.pages == 0 and sorted(cache._free) == list(range(len(cache._users)))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 2, 32), (3, 1, 24), (2, 2, 16), (9, 3, 64)])
def test_going_on_after_a_cache_is_as_if_all_were_computed_together(
    dtype: torch.dtype, heads: int, key_heads: int, width: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths, past = [50, 17, 33, 90], [16, 5, 31, 88]
    query, key, value = (
        torch.randn(sum(lengths), count, width, generator=generator).to(dtype)
        for count in (heads, key_heads, key_heads)
    )
    starts = [0, *np.cumsum(lengths).tolist()]
    whole = kernels.packed_attention(query, key, value, PackedLayout.of(starts, [-1] * 4))
    cache = KeyValueCache(
        layers=1, slots=4, heads=key_heads, width=width, capacity=96, dtype=dtype, device=torch.device("cpu")
    )
    cache.reserve(range(4), past)
    rows = [np.arange(begin, begin + n) for begin, n in zip(starts, past, strict=False)]
    slots, positions = np.repeat(np.arange(4), past), np.concatenate([np.arange(n) for n in past])
    given = torch.from_numpy(np.concatenate(rows))
    cache.write(0, cache.places(slots, positions), key[given], value[given])
    new = torch.from_numpy(
        np.concatenate([np.arange(b + p, b + n) for b, p, n in zip(starts, past, lengths, strict=False)])
    )
    begin = torch.tensor([0, *np.cumsum(np.array(lengths) - past).tolist()])
    length_B, page_BP = torch.tensor(past), torch.from_numpy(cache.table(range(4), max(past)))
    padded = [torch.cat((x[new], x.new_ones(3, *x.shape[1:]))) for x in (query, key, value)]
    found = kernels.continued_attention(*padded, begin, cache.keys[0], cache.values[0], page_BP, length_B)
    assert torch.equal(found[: len(new)], whole[new])
    assert not found[len(new) :].any()
