"""Garbage is looked for rarely while a command starts, and as usual afterwards."""

import gc
from collections.abc import Iterator

import pytest

from posttrain.runs.garbage import USUAL, WHILE_STARTING, as_usual, rarely_collected


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*USUAL)


@pytest.mark.slow
def test_rarely_until_the_work_begins() -> None:
    with rarely_collected():
        assert gc.get_threshold() == WHILE_STARTING
        as_usual()
        assert gc.get_threshold() == USUAL
    assert gc.get_threshold() == USUAL


def test_or_until_a_command_ends_also_with_an_error() -> None:
    with pytest.raises(RuntimeError), rarely_collected():
        raise RuntimeError
    assert gc.get_threshold() == USUAL


@pytest.mark.slow
def test_what_is_there_is_set_aside_once_and_what_comes_is_still_found() -> None:
    with rarely_collected():
        as_usual()
        aside = gc.get_freeze_count()
        assert aside > 10_000
        kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        as_usual()
        assert gc.get_freeze_count() <= aside + 100 < aside + len(kept)
    assert gc.get_freeze_count() == 0
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1


def test_a_program_that_calls_a_run_keeps_its_own_ways() -> None:
    gc.set_threshold(123, 4, 5)
    as_usual()
    assert gc.get_threshold() == (123, 4, 5)
    assert gc.get_freeze_count() == 0
