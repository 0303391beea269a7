"""Rewards of steps by hand: at closing tags, the last with the answer, the mean, and malformed rollouts."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.penalties.step_scores import StepScores
from posttrain.components.rollouts import Spans
from posttrain.components.tasks.tagged_steps import GRAMMAR
from posttrain.signals import Signal
from posttrain.types import Trajectory
from tests.builders import score, trajectory

PROCESS = Signal("score", of="process")
SAID = {PROCESS: np.array([9.0, 0.25, 9.0, -3.0, 9.0, 0.5, 7.0], np.float32)}
TEXT = "<step>1</step><check>ok</check><answer>1</answer>"


def written(text: str = TEXT, *, reward: float = 1.0, **closings: tuple[int, ...]) -> Trajectory:
    """Seven tokens, of which these complete closing tags; the last is the end token."""
    places = closings or {"step": (1,), "check": (3,), "answer": (5,)}
    one = trajectory(7)
    segments = (one.segments[0], replace(one.segments[1], text=text))
    return replace(one, segments=segments, score=score(reward), facts=(Spans(ranges={}, closings=places),))


@pytest.mark.parametrize(
    ("reward", "settings", "expected"),
    [
        # .25, -3 held at 0, and .6 + .4 x .5 = .8 at the last token, where the score of 1 was
        (1.0, {}, [0, 0.25, 0, 0, 0, 0, 0.8 - 1]),
        (0.0, {}, [0, 0.25, 0, 0, 0, 0, 0.2]),
        (1.0, {"outcome": 1.0}, [0, 0.25, 0, 0, 0, 0, 0]),
        (1.0, {"place": "last"}, [0, 0, 0, 0, 0, 0, (0.25 + 0 + 0.8) / 3 - 1]),
    ],
)
def test_rewards_by_hand(reward: float, settings: dict[str, object], expected: list[float]) -> None:
    penalty = StepScores(grammar=GRAMMAR, **settings)  # type: ignore[arg-type]
    assert penalty.in_reward(written(reward=reward), SAID).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        written("<step>1</step><check>ok</check>"),
        written("<answer>1</answer>", answer=(3,)),
        written("<step><answer>1</answer></step>"),
        written(step=(1,), answer=(5,)),  # a closing tag that no token completes
        replace(written(), facts=()),
    ],
)
def test_what_is_no_path_has_one_reward(bad: Trajectory) -> None:
    assert StepScores(grammar=GRAMMAR).in_reward(bad, SAID).tolist() == pytest.approx([0] * 6 + [-0.2 - 1])


def test_it_names_what_it_reads() -> None:
    assert StepScores(grammar=GRAMMAR).tags == {"step", "check", "fix", "answer"}
    assert StepScores(role="other").needs == {Signal("score", of="other")}
