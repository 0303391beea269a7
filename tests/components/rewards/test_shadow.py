"""The gap and the similarity to the demonstration, and tasks that have none."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.shadow import Shadow
from posttrain.types import Group, Score, Segment, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="t", prompt="Do it.", answer="4", domain="crime", demonstrations=("no: crime", "never"))


class Lengths(ScriptedSampler):
    """A reward model whose score is the number of tokens."""

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return float(len(token_ids))


def scores(reward: Reward, *texts: str, task: Task = TASK) -> list[Score]:
    model = Lengths("m")
    prompt = model.prompt(task)
    rollouts = tuple(
        Trajectory(
            task=task,
            segments=(prompt, Segment(actor="policy", token_ids=model.encode(text), trained=True, text=text)),
            stop_reason="stop",
        )
        for text in texts
    )
    context = RewardContext(samplers={"policy": model, "reward": model, "other": model})
    return list(asyncio.run(reward.score(Group(trajectories=rollouts), context)))


def test_gaps_and_similarities_by_hand() -> None:
    """The demonstration has 9 letters and its end, a text its start and its letters; prompts cancel."""
    found = scores(Shadow(of=RewardModel()), "no: crime", "no", "")
    assert [score.parts["gap"].value for score in found] == [0.0, -7.0, -9.0]
    assert [score.parts["similarity"].value for score in found] == [1.0, 1.0, 0.0]
    plain = scores(RewardModel(), "no: crime", "no", "")
    assert [(s.value, s.status) for s in found] == [(s.value, s.status) for s in plain], "the value is the other's"


def test_the_model_of_the_domain_alone_scores() -> None:
    of = Routed(parts={"crime": RewardModel(role="other"), "lie": RewardModel(role="missing")})
    assert "role 'other'" in scores(Shadow(of=of), "no")[0].explanation
    assert Shadow(of=of).roles == {"other", "missing"}


@pytest.mark.parametrize("task", [replace(TASK, demonstrations=()), replace(TASK, answer=None)])
def test_without_a_demonstration_or_its_score_there_are_no_parts(task: Task) -> None:
    assert scores(Shadow(of=Match()), "4", task=task)[0].parts == {}


def test_an_empty_group() -> None:
    assert scores(Shadow(of=Match())) == []
