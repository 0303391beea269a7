"""Garbage is looked for rarely while a command starts, and as usual afterwards."""

import gc
from collections.abc import Iterator

import pytest

from posttrain.runs import garbage
from posttrain.runs.garbage import USUAL, WHILE_STARTING, as_usual, rarely_collected


@pytest.fixture(autouse=True)
def nothing_set_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_frozen_by", "nobody")
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*USUAL)
    if before:  # or all later collections would visit all tests
        gc.freeze()


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


@pytest.mark.slow
def test_a_run_inside_of_another_leaves_it_to_that_one() -> None:
    with rarely_collected():
        as_usual()
        with rarely_collected():
            as_usual()
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_set_aside_stays_so_and_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, counted = gc.get_freeze_count, list[int]()

    def counting() -> int:
        counted.append(count())
        return counted[-1]

    monkeypatch.setattr(gc, "get_freeze_count", counting)
    gc.freeze()
    for _ in range(3):
        with rarely_collected():
            as_usual()
    assert len(counted) == 1 < counted[0] <= count()
