"""Pits of answers whose continuations are given, and of a made process with known probabilities."""

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.pairings.first_pit import FirstPit, best_of
from posttrain.engines import Sampling
from posttrain.types import Task
from tests.components.pairings.given import pair, texts
from tests.components.search.lines import Lines, Scorer

SOLUTION = "a\nb\nc\nright"
TASK = Task(key="t", prompt="P:", demonstrations=(SOLUTION,))
WRONG = "a\nx\nc\nwrong"


class Going(Lines):
    """Continuations of each prefix, taken in their order; bound samplers are the same one."""

    def bind(self, *key: object) -> "Going":
        return self


SCRIPT = {
    "P:a\n": ["b\nc\nright", "x\nc\nwrong", "right", "wrong", "right"],
    "P:a\nx\n": ["c\nwrong", "wrong", "wrong", "wrong", "wrong"],
    "P:a\nx\nc\n": ["wrong", "wrong", "wrong", "right", "wrong"],
}
SCORER = Scorer(
    {SOLUTION: 1.0, "a\nright": 1.0, "a\nx\nc\nright": 1.0}
    | dict.fromkeys([WRONG, "a\nwrong", "a\nx\nwrong", "a\nx\nc\nwrong"], 0.0)
)


def made(rule: FirstPit, task: Task = TASK, script: object = SCRIPT) -> object:
    return pair(rule, (WRONG, 0.0), (SOLUTION, 1.0), task=task, sampler=Going(script), scorer=SCORER)  # type: ignore[arg-type]


def test_the_best_of_k_of_n() -> None:
    assert best_of(5, 1, 5) == 1.0 and best_of(5, 0, 5) == 0.0 and best_of(0, 0, 0) == 0.0
    assert best_of(10, 2, 5) == pytest.approx(1 - math.comb(8, 5) / math.comb(10, 5))
    assert best_of(4, 1, 1) == 0.25


def test_rejected_is_cut_after_the_first_lowest_step() -> None:
    """Of one continuation each: 3/5, 0, 1/5, and 0 for the end, which comes after the first 0."""
    found = made(FirstPit(k=1))
    assert texts(found) == [(SOLUTION, "a\nx\n")]  # type: ignore[arg-type]
    fields = found.pairs[0].fields  # type: ignore[attr-defined]
    assert fields["q"] == pytest.approx([0.6, 0.0, 0.2, 0.0]) and fields["pit"] == 1 and fields["cut"] is True
    assert fields["margin"] == 1.0
    assert found.rollouts == 15  # type: ignore[attr-defined]


def test_the_best_of_five_finds_where_any_is_right() -> None:
    found = made(FirstPit())
    assert found.pairs[0].fields["q"] == [1.0, 0.0, 1.0, 0.0]  # type: ignore[attr-defined]


def test_a_model_that_recovers_hides_the_lowest_q_but_not_the_largest_drop() -> None:
    """With one recovery after the pit best-of-5 gives it 1, and the end is the lowest."""
    script = {**SCRIPT, "P:a\n": ["right"] * 5, "P:a\nx\n": ["wrong"] * 4 + ["c\nright"]}
    lowest, drop = made(FirstPit(), script=script), made(FirstPit(k=1, pit="largest_drop"), script=script)
    assert texts(lowest) == [(SOLUTION, WRONG)]  # type: ignore[arg-type]
    assert "cut" not in lowest.pairs[0].fields  # type: ignore[attr-defined]
    assert texts(drop) == [(SOLUTION, "a\nx\n")]  # type: ignore[arg-type]


def test_a_pit_in_the_first_step_is_kept() -> None:
    script = {**SCRIPT, "P:a\n": ["wrong"] * 5}
    assert texts(made(FirstPit(), script=script)) == [(SOLUTION, "a\n")]  # type: ignore[arg-type]


def test_a_shared_prefix_goes_on_correctly() -> None:
    found = made(FirstPit(shared=True))
    assert texts(found) == [("a\nb\nc\nright", "a\nx\n")]  # type: ignore[arg-type]
    assert found.pairs[0].fields["origin"][0] == {"writer": "policy", "after": "a\n"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("chosen", "shown", "expected"),
    [("any", (SOLUTION,), SOLUTION), ("any", (), "own"), ("own", (SOLUTION,), "own"), ("given", (), None)],
)
def test_who_wrote_the_solution(chosen: str, shown: tuple[str, ...], expected: str | None) -> None:
    task = Task(key="t", prompt="P:", demonstrations=shown)
    rule = FirstPit(chosen=chosen)  # type: ignore[arg-type]
    found = pair(rule, (WRONG, 0.0), ("own", 1.0), task=task, sampler=Going(SCRIPT), scorer=SCORER)  # type: ignore[arg-type]
    assert [one.chosen for one in found.pairs] == ([] if expected is None else [expected])
    assert found.reason == ("no correct solution" if expected is None else "")


def test_none_without_an_incorrect_answer() -> None:
    assert pair(FirstPit(), (SOLUTION, 1.0), task=TASK).reason == "no incorrect answer"
    with pytest.raises(ValidationError, match="at most n"):
        FirstPit(n=3, k=4)


class Process(Going):
    """Five steps; at the third everything is lost but for a share `after`. Before it, a share `before` comes out."""

    def __init__(self, rng: Random, before: float, after: float) -> None:
        super().__init__({})
        self.rng, self.before, self.after = rng, before, after

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: object = None) -> list:  # type: ignore[type-arg]
        steps = self.decode(token_ids).count("\n")
        right = [self.rng.random() < (self.after if steps >= 3 else self.before) for _ in range(n)]
        return [self._write("P:", "+" if one else "-", 64) for one in right]


class Sign(Scorer):
    def __init__(self) -> None:
        super().__init__({})

    def _score(self, text: str):  # type: ignore[no-untyped-def]
        self.rewards = {text: float(text.endswith("+"))}
        return super()._score(text)


def share_found(rule: FirstPit, *, after: float, before: float = 0.6, trials: int = 150) -> float:
    """Share of the answers whose planted step, the third, is found."""
    rng = Random(0)
    found: Sequence[object] = [
        pair(rule, ("1\n2\n3\n4\n-", 0.0), ("+", 1.0), task=TASK, sampler=Process(rng, before, after), scorer=Sign())  # type: ignore[arg-type]
        .pairs[0]
        .fields["pit"]
        for _ in range(trials)
    ]
    return sum(pit == 2 for pit in found) / trials


@pytest.mark.slow
def test_a_planted_fatal_step_is_found() -> None:
    """With 5 continuations in more than 90 % of the answers; where 5 % recover, the lowest Q often misses it."""
    assert share_found(FirstPit(), after=0.0) > 0.9
    lowest = share_found(FirstPit(n=25), after=0.05)
    drop = share_found(FirstPit(n=25, pit="largest_drop"), after=0.05)
    assert drop > 0.9 > lowest
