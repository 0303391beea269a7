"""A ranking in one call: its order, agreement with the policy, demonstrations, and replies that are none."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.ranked import LETTERS, Ranked, agreement
from posttrain.components.rewards.regex import Regex
from posttrain.engines import Sampling
from posttrain.types import Score, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [("abcd", "acbd", "abd"), ("abcd", "abcd", "abcd"), ("abcd", "dcba", "a"), ("acbd", "abcd", "acd"), ("", "", "")],
)
def test_agreement_is_the_longest_common_order(first: str, second: str, both: str) -> None:
    assert agreement(first, second) == list(both)


def rollout(text: str, logp: float) -> Trajectory:
    made = attempt(text, Task(key="t", prompt="Which?"))
    prompt, own = made.segments
    return replace(made, segments=(prompt, replace(own, logp=np.full(len(own), logp, np.float32))))


class BlackBox(ScriptedSampler):
    """Ranks by the order of these texts, or replies as is."""

    def __init__(self, *order: str, reply: str = "") -> None:
        super().__init__("ranker")
        self.order, self.reply, self.prompts = order, reply, list[str]()

    async def write(self, prompt: Any, n: int, sampling: Sampling) -> list[str]:
        text = prompt[0]["content"]
        self.prompts.append(text)
        shown = text.partition("Question:\n\nWhich?")[2]
        letters = {
            one: next(a for a in LETTERS if f"{a}:\n<<<BEGIN" in shown and self._is(shown, a, one))
            for one in self.order
        }
        return [self.reply or " > ".join(letters[one] for one in self.order)]

    def _is(self, shown: str, letter: str, text: str) -> bool:
        return shown.split(f"{letter}:\n<<<BEGIN")[1].split(">>>\n")[1].split("\n<<<END")[0] == text


def scored(box: BlackBox, *rollouts: Trajectory, context: RewardContext | None = None, **settings: Any) -> list[Score]:
    context = replace(context or RewardContext(), samplers={"ranker": box})
    return score_all(Ranked(role="ranker", **settings), *rollouts, context=context)


ROLLOUTS = [rollout("one", -1.0), rollout("two", -2.0), rollout("three", -3.0), rollout("two", -2.0)]


def test_ranks_are_those_of_the_texts_whatever_their_letters() -> None:
    box = BlackBox("three", "one", "two")
    scores = scored(box, *ROLLOUTS)
    assert [score.value for score in scores] == [0.5, 0.0, 1.0, 0.0], "rollouts of the same text are one"
    assert scores[0].parts["agreement"].value == pytest.approx(2 / 3), "one, two: the policy has one, two, three"
    assert len(box.prompts) == 1 and box.prompts[0].count("<<<BEGIN") == 3


def test_a_long_rollout_is_cut_at_its_end_and_counted() -> None:
    scores = scored(BlackBox("thr", "one", "two"), *ROLLOUTS, longest=3)
    assert [score.value for score in scores] == [0.5, 0.0, 1.0, 0.0]
    assert [score.parts["cut"].value for score in scores] == [0.0, 0.0, 1.0, 0.0]


def test_what_both_agree_on_is_a_demonstration_of_the_next_call() -> None:
    context = RewardContext(learning=True)
    scored(BlackBox("three", "one", "two"), *ROLLOUTS, context=context, most=1)
    [first] = context.state["demonstrations"]
    assert first.endswith("1. one\n\n2. two")
    box = BlackBox("one", "two", "three")
    scored(box, *ROLLOUTS, context=context, most=1, static=("Given.",))
    assert box.prompts[0].index("Given.") < box.prompts[0].index("1. one\n\n2. two")
    assert context.state["demonstrations"][0].endswith("1. one\n\n2. two\n\n3. three"), "the oldest leaves"


def test_an_agreement_of_one_and_evaluations_leave_no_demonstration() -> None:
    learning, evaluating = RewardContext(learning=True), RewardContext()
    scored(BlackBox("three", "two", "one"), *ROLLOUTS, context=learning)
    scored(BlackBox("one", "two", "three"), *ROLLOUTS, context=evaluating)
    assert not learning.state and not evaluating.state


@pytest.mark.parametrize("reply", ["A > B", "A > B > B", "A > B > D", "A > B > C > D", "none", "N/A"])
def test_a_reply_that_is_no_ranking_is_never_guessed(reply: str) -> None:
    scores = scored(BlackBox("one", "two", "three", reply=reply), *ROLLOUTS)
    assert all(score.status == "error" and math.isnan(score.value) for score in scores)
    assert "is no ranking of 3 answers" in scores[0].explanation


def test_another_reward_ranks_and_decides_what_is_correct() -> None:
    by = Ranked(of=Regex(pattern="t", matched=2.0))
    scores = score_all(by, *ROLLOUTS)
    assert [s.value for s in scores] == [0.0, 1.0, 1.0, 1.0], "two and three score the same, and share a rank"
    assert [s.status for s in scores] == ["wrong", "ok", "ok", "ok"]
    assert score_all(by, ROLLOUTS[0])[0].value == 1.0, "one rollout is the first of one"
