"""Domains in shares: frequencies, no repetition before a domain is used up, what is refused."""

from collections import Counter
from typing import Any

import pytest

from posttrain.components.curricula.by_share import ByShare
from posttrain.errors import UserError
from posttrain.types import Task

POOL = [Task(key=f"{domain}{i}", prompt="p", domain=domain) for domain in ("a", "b", "c") for i in range(4)]


def drawn(curriculum: ByShare, count: int, steps: int = 1) -> tuple[list[str], Any]:
    state, keys = curriculum.start(), list[str]()
    for step in range(steps):
        state, picks = curriculum.select(state, POOL, count, seed=3, step=step)
        keys += [pick.task.key for pick in picks]
    return keys, state


@pytest.mark.parametrize(
    ("shares", "expected"),
    [({}, (1 / 3, 1 / 3, 1 / 3)), ({"a": 3, "c": 1}, (0.75, 0.0, 0.25)), ({"b": 0.2}, (0.0, 1.0, 0.0))],
)
def test_frequencies_are_the_shares(shares: dict[str, float], expected: tuple[float, ...]) -> None:
    """20,000 draws: four standard errors are at most .014."""
    counts = Counter(key[0] for key in drawn(ByShare(shares=shares), 20_000)[0])
    assert [counts[domain] / 20_000 for domain in "abc"] == pytest.approx(expected, abs=0.014)


def test_no_task_again_before_its_domain_is_used_up() -> None:
    keys, state = drawn(ByShare(shares={"a": 1}), 2, steps=2)
    assert sorted(keys) == ["a0", "a1", "a2", "a3"] and ByShare().report(state)["exhausted"] == 0.0
    keys, state = drawn(ByShare(shares={"a": 1}), 3, steps=2)
    assert ByShare().report(state)["exhausted"] == 1.0 and set(keys[:4]) == {"a0", "a1", "a2", "a3"}


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="names the domain 'bb', which no task has; did you mean 'b'"):
        ByShare(shares={"bb": 1}).check(POOL, 2)
    with pytest.raises(UserError, match="are all 0"):
        ByShare(shares={"a": 0}).check(POOL, 2)
    ByShare(shares={"a": 0, "b": 1}).check(POOL, 2)


def test_equal_shares_and_one_domain_are_noted() -> None:
    assert ByShare(shares={"a": 3, "c": 1}).notes(POOL) == []
    for shares in ({}, {"a": 2, "b": 2, "c": 2}):
        [note] = ByShare(shares=shares).notes(POOL)
        assert "all 3 domains have the same share, and" in note
    for curriculum, tasks in ((ByShare(shares={"a": 1}), POOL), (ByShare(), POOL[:4])):
        [note] = curriculum.notes(tasks)
        assert "only one domain has tasks and a share" in note
