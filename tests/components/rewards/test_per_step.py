"""A score over the number of latent steps."""

import asyncio
from dataclasses import replace

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.per_step import PerStep
from posttrain.datasets.latents import CLOSING, STEP
from posttrain.types import Group, Segment
from tests.builders import trajectory


def test_a_right_answer_after_four_steps_has_a_quarter() -> None:
    kinds = [STEP] * 4 + [CLOSING, 0.0]
    vectors = np.array([[kind, 1.0] for kind in kinds], np.float32)
    made = trajectory(6)
    prompt, written = made.segments
    latent = replace(made, segments=(prompt, replace(written, vectors=vectors, text="#### 4")))
    text = replace(made, segments=(prompt, Segment(actor="policy", token_ids=np.arange(2), text="#### 4")))
    wrong = replace(made, segments=(prompt, replace(written, vectors=vectors, text="#### 5")))
    group = Group(trajectories=(latent, text, wrong))
    scores = asyncio.run(PerStep(of=Match()).score(group, RewardContext()))
    assert [score.value for score in scores] == [0.25, 1.0, 0.0]
    assert [score.status for score in scores] == ["ok", "ok", "wrong"]
