"""A simulated user with a mood."""

from itertools import pairwise

from posttrain.components.environments.moods import LINES, Moods
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")


def need(environment: Moods) -> str:
    """The need of the task, from the user's first line."""
    first, *_ = play(environment, TASK, [])
    return next(name for name, line in LINES.items() if line in first.text)


def test_the_mood_moves_by_each_reply() -> None:
    calm = Moods(shifts=False)
    fit = need(calm)
    other = next(name for name in LINES if name != fit)
    # 40 + 3 * 6 - 2 * 4 = 50; a thought is not heard.
    replies = [fit, f"<think>{other}</think>{fit}", other, "hm", fit]
    _, outcomes, verdict, measures = play(calm, TASK, replies)
    assert measures == {"mood": 50.0, "fits": 0.6, "regret": 1.0}
    assert verdict is not None
    assert not verdict.solved
    assert [outcome.valid for outcome in outcomes] == [True, True, True, False, True]
    assert outcomes[0].observation.text == f"\nThanks. {LINES[fit]}\n"


def test_ten_a_turn_at_most_and_an_end_at_a_hundred_or_none() -> None:
    best = Moods(gain=30, loss=30, shifts=False)
    fit = need(best)
    # 40 + 6 * 10 = 100 after six replies, and 40 - 4 * 10 = 0 after four.
    _, outcomes, verdict, measures = play(best, TASK, [fit] * 8)
    assert (len(outcomes), measures["mood"], outcomes[-1].done) == (6, 100.0, True)
    assert verdict is not None
    assert verdict.solved
    _, outcomes, _, measures = play(best, TASK, ["hm"] * 8)
    assert (len(outcomes), measures["mood"]) == (4, 0.0)


def test_the_need_changes_once_and_may_be_hidden() -> None:
    fit = need(Moods())
    seen = [o.observation.text for o in play(Moods(), TASK, [fit] * 8)[1]]
    needs = [next(name for name, line in LINES.items() if line in text) for text in seen]
    assert sum(a != b for a, b in pairwise(needs)) == 1
    hidden = [o.observation.text for o in play(Moods(shown=False), TASK, [fit] * 8)[1]]
    assert not any(line in text for text in hidden for line in LINES.values())
