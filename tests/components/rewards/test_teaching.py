"""Rewards of explanations, by hand, and the release's edge cases."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.teaching import Teaching
from posttrain.types import Score, Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import score_all

TASK = Task(key="q", prompt="s=12 q", fields={"question": "q", "solution": "12"})
STUDENT = {"a": -0.5, "b": -2.0, "1": -0.1, "2": -0.3, "c": -0.25}


class Student(ScriptedSampler):
    """A byte has the log-probability of the table, whatever is before it, divided by the temperature."""

    def __init__(self) -> None:
        super().__init__("student")
        self.read: list[str] = []

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        text = self.decode(token_ids)
        self.read.append(text)
        return np.array([STUDENT.get(chr(i), -9.0) / temperature for i in token_ids[1:]], np.float32)


def explained(text: str, logp: list[float], *, of: Task = TASK, end: bool = True) -> Trajectory:
    """An explanation with the teacher's log-probabilities of its first tokens; the rest have -7."""
    ids = np.array([*text.encode(), *([0] if end else [])], np.int64)
    logp_T = np.full(len(ids), -7.0, np.float32)
    logp_T[: len(logp)] = logp
    own = Segment(actor="policy", token_ids=ids, trained=True, logp=logp_T, text=text)
    prompt = Segment(actor="prompt", token_ids=np.arange(1, 5), text="s=12 q")
    return Trajectory(task=of, segments=(prompt, own), stop_reason="stop")


def scores(*rows: Trajectory, **settings: Any) -> tuple[list[Score], Student]:
    student = Student()
    reward = Teaching(closing=".", between=" ", temperature=1.0, **settings)
    return score_all(reward, *rows, context=RewardContext(samplers={"student": student})), student


def test_by_hand() -> None:
    """l = -0.1, -0.3; d = -0.2 + 0.5 = 0.3 and -1 + 2 = 1: -0.2 - 0.003 - (3 * 0.65 + 0.03)."""
    [score], student = scores(explained("ab.", [-0.2, -1.0]))
    assert score.value == pytest.approx(-0.203 - 1.98) and score.status == "ok"
    assert score.parts["solution"].value == pytest.approx(-0.203)
    assert score.parts["divergence"].value == pytest.approx(1.98)
    assert [text.lstrip("\x01") for text in student.read] == ["qab. 12"], "the student reads no solution before"


def test_words_that_the_student_finds_likelier_are_rewarded() -> None:
    """d = -2 + 0.25 = -1.75: 3.03 * 1.75 more; the positive estimate exp(1.75) - 1 - 1.75 is a loss."""
    [signed], _ = scores(explained("c.", [-2.0]))
    assert signed.value == pytest.approx(-0.203 + 3.03 * 1.75)
    [positive], _ = scores(explained("c.", [-2.0]), estimator="positive")
    assert positive.value == pytest.approx(-0.203 - 3.03 * (np.exp(1.75) - 2.75))


def test_the_same_model_and_context_do_not_diverge() -> None:
    [score], _ = scores(explained("ab.", [-0.5, -2.0]))
    assert score.parts["divergence"].value == pytest.approx(0.0)


def test_a_missing_end_costs_one_and_the_text_is_still_read() -> None:
    """The end token is not a word of the explanation."""
    (whole, without, cut), student = scores(
        explained("ab.", [-0.2, -1.0]), explained("ab", [-0.2, -1.0]), explained("ab", [-0.2, -1.0], end=False)
    )
    assert without.value == pytest.approx(whole.value - 1.0) == cut.value and without.status == "wrong"
    assert len(set(student.read)) == 1


def test_empty_parts_have_the_release_s_numbers() -> None:
    [score], _ = scores(explained(".", []))
    assert score.value == pytest.approx(-0.203 - 3.03)
    [bare], _ = scores(explained("ab.", [-0.5, -2.0], of=replace(TASK, fields={"question": "q", "solution": ""})))
    assert bare.value == pytest.approx(-1.01)


def test_what_cannot_be_scored_is_an_error() -> None:
    [score], _ = scores(explained("a.", [-1.0], of=replace(TASK, fields={})))
    assert score.status == "error" and "tasks/taught" in score.explanation


def test_copying_the_solution_is_what_the_largest_divergence_finds() -> None:
    """A teacher that is sure of a 1 that the student does not expect (-9 for ~) has 0.03 * 9 less by the maximum."""
    (with_max, _), _ = scores(explained("a~.", [-0.5, 0.0]), explained("aa.", [-0.5, -0.5]))
    [without], _ = scores(explained("a~.", [-0.5, 0.0]), divergence=(3.0, 0.0))
    assert without.value - with_max.value == pytest.approx(0.27)
