"""Process advantages of a prover, from values that are written out."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.prover_steps import ProverSteps, best_of
from posttrain.types import Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import score_all

TASK = Task(key="t", prompt="6*7?", answer="42")


class Values(ScriptedSampler):
    """The chance of success by the text after the prompt."""

    by_text: ClassVar = {"": 0.25, "6*7=42;": 0.5, "6*7=42; 42": 1.5}

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return self.by_text[self.decode(token_ids).removeprefix("6*7?")]


def test_the_best_of_2_by_hand() -> None:
    sampler = Values("value")
    text = "6*7=42; 42"
    written = Segment(actor="policy", token_ids=sampler.encode_completion("", text), trained=True, text=text)
    rollout = Trajectory(task=TASK, segments=(sampler.prompt(TASK), written), stop_reason="stop")
    rollout = replace(rollout, segments=(rollout.segments[0], written))
    context = RewardContext(samplers={"value": sampler})
    reward = ProverSteps(correct=Match(extract=("last_number",)), k=2, alpha=2.0)
    (score,) = score_all(reward, rollout, context=context)
    # Best of 2: .25 -> .4375, .5 -> .75, and 1.5 is held at 1.
    rewards = [round(reward, 9) for _, _, reward, _ in score.spans]
    assert rewards == [2 * (0.75 - 0.4375), 2 * (1 - 0.75)]
    assert score.value == pytest.approx(1 + sum(rewards)) and score.status == "ok"
    assert [text[a:b] for a, b, _, _ in score.spans] == ["6*7=42;", "42"]


def test_provers_without_news() -> None:
    assert best_of(0.3, 1) == pytest.approx(0.3) and best_of(-1.0, 4) == 0.0 and best_of(2.0, 4) == 1.0
    assert best_of(0.5, 4) == 1 - 0.5**4
