"""Increments of a value model, from values that are written out."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.increments import Increments
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.types import Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import score_all

TASK = Task(key="t", prompt="x = ", answer="ab")


class Values(ScriptedSampler):
    """The value of the text after the prompt."""

    def __init__(self, **by_text: float) -> None:
        super().__init__("value")
        self.by_text = by_text

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return self.by_text["_" + self.decode(token_ids).removeprefix("x = ")]


def rollout(sampler: ScriptedSampler, text: str) -> Trajectory:
    written = Segment(actor="recorded", token_ids=sampler.encode_completion("", text), trained=True, text=text)
    return Trajectory(task=TASK, segments=(sampler.prompt(TASK), written), stop_reason="stop")


def test_by_hand_and_their_sum() -> None:
    """.2 to .51236 is .3124 after rounding, and on to .5 is -.0124; the end token has none."""
    sampler = Values(_=0.2, _a=0.51236, _ab=0.5)
    context = RewardContext(samplers={"value": sampler})
    (score,) = score_all(Increments(correct=TextSimilarity()), rollout(sampler, "ab"), context=context)
    assert [(a, b, part) for a, b, _, part in score.spans] == [(0, 1, "increment"), (1, 2, "increment")]
    assert [reward for _, _, reward, _ in score.spans] == [0.3124, -0.0124]
    assert score.value == pytest.approx(0.3) and score.status == "ok" and score.parts["correct"].value == 1.0


def test_filler_that_the_model_likes_is_rewarded_and_wrong() -> None:
    sampler = Values(_=0.2, _q=0.6, _qq=1.0, _ab=0.5, _a=0.3)
    context = RewardContext(samplers={"value": sampler})
    reward = Increments(correct=TextSimilarity())
    filler, right = score_all(reward, rollout(sampler, "qq"), rollout(sampler, "ab"), context=context)
    assert (filler.value, filler.status) == (pytest.approx(0.8), "wrong")
    assert (right.value, right.status) == (pytest.approx(0.3), "ok")


def test_a_constant_model_and_errors() -> None:
    sampler = Values(_=0.4, _a=0.4, _ab=0.4)
    context = RewardContext(samplers={"value": sampler})
    reward = Increments(correct=TextSimilarity())
    (score,) = score_all(reward, rollout(sampler, "ab"), context=context)
    assert score.value == 0.0 and all(reward == 0.0 for _, _, reward, _ in score.spans)
    bare = replace(rollout(sampler, "ab"), task=Task(key="bare", prompt="x = "))
    assert score_all(reward, bare, context=context)[0].status == "error"
    broken = Values(_=0.4, _a=float("nan"), _ab=0.4)
    assert score_all(reward, rollout(broken, "ab"), context=RewardContext(samplers={"value": broken}))[0].status == (
        "error"
    )
