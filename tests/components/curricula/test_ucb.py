import math
from collections import Counter

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula.ucb import Ucb
from posttrain.types import Task
from tests.components.curricula.helpers import failed, group

POOL = [Task(key=f"{domain}{i}", prompt="", domain=domain) for domain in ("a", "b", "c") for i in range(4)]
A, B = POOL[0], POOL[4]
SPREAD = math.sqrt(7 / 8)
"""Mean |A| of eight rollouts of which half are correct, with the sample's standard deviation."""


def test_bound_by_hand() -> None:
    curriculum = Ucb()
    state = curriculum.observe(curriculum.start(), [group(A, [1, 0] * 4), group(B, [1] * 8)])
    assert state["n"] == {"a": 1, "b": 1}, "prompts"
    bounds = curriculum.bounds(state, ["a", "b", "c"])
    assert bounds == pytest.approx(
        [
            SPREAD + math.sqrt(2 * math.log(3) / 2),
            0.0 + math.sqrt(2 * math.log(3) / 2),
            math.sqrt(2 * math.log(3)),
        ],
        rel=1e-5,
    )
    without = Ucb(exploration=0.0).bounds(state, ["a", "b", "c"])
    assert without == pytest.approx([SPREAD, 0.0, 0.0], rel=1e-5)


def test_rollouts_are_counted_where_the_release_does() -> None:
    curriculum = Ucb(count="rollouts")
    state = curriculum.observe(curriculum.start(), [group(A, [1, 0] * 4), group(A, [1] * 8)])
    assert state["n"] == {"a": 16}


def test_only_the_newest_of_the_window_count() -> None:
    curriculum = Ucb(window=8)
    state = curriculum.observe(curriculum.start(), [group(A, [1, 0] * 4)])
    state = curriculum.observe(state, [group(A, [1] * 4)])
    assert state["window"]["a"] == pytest.approx([SPREAD] * 4 + [0.0] * 4, rel=1e-5)
    state = curriculum.observe(state, [group(A, [1] * 8)])
    assert curriculum.bounds(state, ["a"])[0] == pytest.approx(math.sqrt(2 * math.log(4) / 4)), "n is not windowed"


def shares(curriculum: Ucb, state: State) -> list[float]:
    _, picks = curriculum.select(state, POOL, 20_000, seed=0, step=0)
    counts = Counter(pick.task.domain for pick in picks)
    return [counts[name] / 20_000 for name in "abc"]


def test_shares_are_a_softmax_of_the_bounds_and_uniform_at_first() -> None:
    assert shares(Ucb(), Ucb().start()) == pytest.approx([1 / 3] * 3, abs=0.015)
    state: State = {"window": {"a": [0.9], "b": [0.6], "c": [0.0]}, "n": {"a": 40, "b": 40, "c": 40}, "position": {}}
    weights = np.exp(np.array([0.9, 0.6, 0.0]) / 0.5)
    assert shares(Ucb(temperature=0.5), state) == pytest.approx(weights / weights.sum(), abs=0.015)


def test_a_high_temperature_is_nearly_uniform() -> None:
    """Differences of bounds are below 1, so that at 1 no share is above e times another."""
    state: State = {"window": {"a": [0.9], "b": [0.0], "c": [0.0]}, "n": {"a": 40, "b": 40, "c": 40}, "position": {}}
    found = shares(Ucb(temperature=1.0), state)
    assert max(found) < math.e * min(found)
    assert shares(Ucb(), state)[0] > 0.99


def test_a_category_that_was_never_drawn_is_the_likeliest_after_a_while() -> None:
    state: State = {"window": {"a": [0.9], "b": [0.5]}, "n": {"a": 40, "b": 40}, "position": {}}
    assert shares(Ucb(), state)[2] > 0.99


def test_items_are_drawn_with_replacement_or_in_epochs() -> None:
    state, picks = Ucb().select(Ucb().start(), POOL, 12, seed=0, step=0)
    assert len({pick.task.key for pick in picks}) < 12
    curriculum, keys = Ucb(draw="epochs"), list[str]()
    state = curriculum.start()
    for step in range(4):
        state, picks = curriculum.select(state, POOL, 3, seed=0, step=step)
        keys += [pick.task.key for pick in picks]
    own = [key for key in keys if key[0] == "a"]
    assert len(set(own[:4])) == len(own[:4]) > 1


def test_failed_scores_do_not_count() -> None:
    state = Ucb().observe(Ucb().start(), [failed(A)])
    assert state["n"] == {} and state["window"] == {}


def test_report_has_a_row_for_each_category() -> None:
    curriculum = Ucb()
    state, _ = curriculum.select(curriculum.start(), POOL, 2, seed=0, step=0)
    state = curriculum.observe(state, [group(A, [1, 0]), group(B, [1, 1])])
    report = curriculum.report(state)
    assert (report["share/a"], report["share/b"], report["share/c"]) == (0.5, 0.5, 0.0)
    assert (report["solved/a"], report["solved/b"]) == (0.5, 1.0) and "solved/c" not in report
    assert report["bound/c"] > report["bound/b"]
