"""A model that criticizes before it scores: its loss by hand, what it reads, and that the score sees the critique."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.critiqued import Critiqued
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import SCORE
from posttrain.stages.critique_model import CritiqueModelTraining
from posttrain.types import Preference, Task, Tokens
from tests.builders import tokens
from tests.components.rewards.judging import attempt, score_all

STAGE = CritiqueModelTraining(reducer=Sequences(), request="{question}|{completion}|")
PAIR = Preference(chosen="4", rejected="5", fields={"chosen_critique": "yes", "rejected_critique": "no, 4"})


def given(score_T: Tensor, logp_T: Tensor) -> Tokens:
    """One pair with critiques of two tokens and one; the first completion is chosen."""
    made = tokens([[0.0, 0.0], [0.0]], advantage=[[1.0, 1.0], [-1.0]], group_N=[0, 0])
    return replace(made, logp_T=logp_T, signals={SCORE: score_T})


SCORES = torch.tensor([9.0, 2.0, 0.5], dtype=torch.float64)
LOGP = torch.tensor([-1.0, -3.0, -0.5], dtype=torch.float64)


def test_the_loss_by_hand() -> None:
    """Scores at the last tokens are 2 and .5: log(1 + e^-1.5) + .01 * 2.5^2; each token adds twice its own loss."""
    result = STAGE._loss(given(SCORES, LOGP), {})
    pair = math.log1p(math.exp(-1.5)) + 0.01 * 6.25
    assert result.loss_T.tolist() == pytest.approx([pair + 2.0, pair + 6.0, pair + 1.0])
    # The mean over both sequences of their mean tokens: pair + ((2 + 6) / 2 + 1) / 2 = pair + lm(chosen) + lm(rejected)
    assert (result.loss_T[:2].mean() + result.loss_T[2]) / 2 == pytest.approx(pair + 2.0 + 0.5)
    scores_only = replace(STAGE, critic=0.0, center=0.0)._loss(given(SCORES, LOGP), {})
    assert scores_only.loss_T.tolist() == pytest.approx([math.log1p(math.exp(-1.5))] * 3)
    assert result.metrics["pair_margin"].tolist() == [1.5] and result.metrics["pair_accuracy"].tolist() == [1.0]


def test_finite_differences() -> None:
    def loss(score_T: Tensor, logp_T: Tensor) -> Tensor:
        return STAGE._loss(given(score_T, logp_T), {}).loss_T

    assert torch.autograd.gradcheck(loss, (SCORES.clone().requires_grad_(), LOGP.clone().requires_grad_()))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    new_folder(folder, layers=1, width=16, heads=2, kv_heads=1, context=64)
    settings = Model(source=str(folder), projection=4, trained=True)
    found: Any = load_policy("reward", settings, {}, torch.device("cpu"))
    with torch.no_grad():
        found.projection.value.weight.copy_(torch.tensor([[1.0, -1.0, 0.5, 2.0]]))
    return found


def test_critiques_are_learned_and_completions_are_read(policy: Any) -> None:
    chosen, rejected = STAGE._sides(policy, Task(key="k", prompt="2+2="), PAIR)
    assert [t.segments[0].text for t in (chosen, rejected)] == ["2+2=|4|", "2+2=|5|"]
    assert [t.segments[1].text for t in (chosen, rejected)] == ["yes", "no, 4"]
    assert [t.num_trained for t in (chosen, rejected)] == [4, 6] and [chosen.sample, rejected.sample] == [0, 1]


def test_a_pair_without_critiques_is_refused(policy: Any) -> None:
    task = Task(key="k", prompt="2+2=", preferences=(Preference(chosen="4", rejected="5"),))
    with pytest.raises(UserError, match="this pair has no 'chosen_critique'"):
        STAGE.check({"policy": policy, "reward": policy}, [task])
    STAGE.check({"policy": policy, "reward": policy}, [replace(task, preferences=(PAIR,))])


def test_the_score_follows_the_critique(policy: Any, tmp_path: Path) -> None:
    """The reward is the score after what was written, greedy, and another critique has another score."""
    reward = Critiqued(request="{question}|{completion}|", sampling=Sampling(temperature=0.0, max_tokens=5))
    sampler = Native().serve(policy, 0).bind("test")
    task = Task(key="k", prompt="2+2=")
    [found] = score_all(reward, attempt("4", task), context=RewardContext(samplers={"reward": sampler}))
    ids = sampler.encode("2+2=|4|")

    async def scores() -> list[float]:
        [own] = await sampler.sample(ids, 1, reward.sampling)
        texts = [own.token_ids, sampler.encode_completion("", "no"), sampler.encode_completion("", "yes")]
        return [await sampler.score(torch.cat([torch.tensor(ids), torch.tensor(t)]).numpy()) for t in texts]

    own, no, yes = asyncio.run(scores())
    assert found.value == pytest.approx(own) and len({round(x, 6) for x in (own, no, yes)}) == 3
    assert "after the critique" in found.explanation


def test_what_does_not_fit_is_an_error(policy: Any) -> None:
    reward = Critiqued(request="{question}|{completion}|")
    sampler = Native().serve(policy, 0).bind("test")
    [found] = score_all(
        reward, attempt("4" * 99, Task(key="k", prompt="?")), context=RewardContext(samplers={"reward": sampler})
    )
    assert found.status == "error" and "tokens, and the role 'reward' takes 64" in found.explanation
