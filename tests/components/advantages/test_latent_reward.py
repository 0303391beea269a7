"""The return of an episode on its steps, by a decoder of factors."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.latent_reward import LatentReward, steps_of
from posttrain.errors import UserError
from posttrain.signals import OLD_VALUE
from posttrain.types import Batch, Group, Segment, Trajectory
from tests.builders import score, task
from tests.components.rewards.programs import tier_for

CODE = "def f(observation, action):\n    return [observation[0] * action[0]]\n"


def episode(steps: list[tuple[float, float]], whole: float) -> Trajectory:
    """Turns of one observed number and one action of two tokens."""
    segments = []
    for turn, (seen, done) in enumerate(steps):
        actor = "environment" if turn else "prompt"
        segments.append(Segment(actor=actor, token_ids=np.arange(2), turn=turn, text=f"[{seen}]\n"))
        segments.append(
            Segment(
                actor="policy",
                token_ids=np.arange(2),
                trained=True,
                logp=np.full(2, -1.0, np.float32),
                turn=turn,
                text=f"{done}\n",
            )
        )
    return Trajectory(task=task(), segments=tuple(segments), stop_reason="environment", score=score(whole))


def episodes(count: int, rng: np.random.Generator) -> tuple[Batch, list[list[float]]]:
    """Episodes of four steps whose rewards are observation times action, given at the end."""
    made, truth, rewards = [], [], []
    for _ in range(count):
        steps = [(round(float(a), 3), round(float(b), 3)) for a, b in rng.normal(size=(4, 2))]
        own = [a * b for a, b in steps]
        truth.append(own)
        made.append(episode(steps, sum(own)))
        rewards.append(np.array([0.0] * 7 + [sum(own)], np.float32))
    signals = {OLD_VALUE: tuple(np.zeros(8, np.float32) for _ in made)}
    group = Group(key="task", trajectories=tuple(made))
    return Batch(groups=(group,), token_rewards=tuple(rewards), signals=signals), truth


def test_steps_are_the_numbers_in_the_texts() -> None:
    assert steps_of(episode([(0.5, -1.0), (2.0, 3.0)], 1.0)) == [([0.5], [-1.0]), ([2.0], [3.0])]
    words = Segment(actor="prompt", token_ids=np.arange(1), text="go to 3 or nan, inf x4 5.0")
    done = Segment(actor="policy", token_ids=np.arange(1), trained=True, text="north")
    assert steps_of(Trajectory(task=task(), segments=(words, done), stop_reason="stop")) == [([3.0, 5.0], [])]


@pytest.mark.slow
def test_rewards_of_steps_are_found_from_returns_in_the_sandbox() -> None:
    """With gamma 0 and values of 0 the advantage of a step's last token is its reward; its other token has none."""
    reward = LatentReward(
        advantage=GAE(gamma=0.0, lam=0.0, whiten=False), encoder=CODE, updates=300, weakest=tier_for() or "cgroup"
    )
    rng = np.random.default_rng(0)
    state, _ = reward(reward.start(), episodes(60, rng)[0])
    batch, truth = episodes(30, rng)
    state, credit = reward(json.loads(json.dumps(state)), batch)
    found = np.array([a_T[1::2] for a_T in credit.advantages])
    assert all(not a_T[::2].any() for a_T in credit.advantages)
    assert np.corrcoef(found.reshape(-1), np.reshape(truth, -1))[0, 1] > 0.9
    returns = batch.return_N
    assert np.abs(found.sum(1) - returns).mean() < 0.2 * np.abs(returns).mean()
    assert credit.metrics["latent/gap"] == pytest.approx(np.abs(found.sum(1) - returns).mean(), rel=1e-4)
    assert len(state["episodes"]) == 90


def test_without_an_encoder_the_numbers_themselves_are_decoded() -> None:
    reward = LatentReward(advantage=GAE(whiten=False), updates=2)
    state, _ = reward(reward.start(), episodes(4, np.random.default_rng(0))[0])
    assert state["code"] is None and len(state["episodes"][0][0]) == 2 and not reward.prepares


def test_steps_of_other_sizes_need_an_encoder() -> None:
    batch, _ = episodes(1, np.random.default_rng(0))
    odd = Segment(actor="policy", token_ids=np.arange(2), trained=True, text="1 2")
    short = episode([(0.5, 1.0)], 0.0)
    group = Group(key="t", trajectories=(*batch.trajectories, replace(short, segments=(short.segments[0], odd))))
    both = Batch(groups=(group,), token_rewards=(*batch.token_rewards, np.zeros(2, np.float32)))
    plain = LatentReward(advantage=GroupMean())
    with pytest.raises(UserError, match="2 to 3 numbers"):
        plain(plain.start(), both)


@pytest.mark.parametrize("encoder", ["text", "x = 1", "def f(:"])
def test_what_is_no_code_is_refused(encoder: str) -> None:
    with pytest.raises(ValidationError, match=r"neither a file that ends in \.py nor code"):
        LatentReward(advantage=GAE(), encoder=encoder)
    with pytest.raises(ValidationError, match="the writer writes the encoder"):
        LatentReward(advantage=GAE(), encoder=CODE, writer="writer")


BROKEN = "def f(o, a):\n    return [1 / 0]\n"


class Writer:
    async def write(self, prompt: str, n: int, sampling: Any) -> list[str]:
        return [
            json.dumps({"functions": [CODE if "ZeroDivision" in prompt else "def f(o, a):\n    return [1 / 0]\n"]})
        ] * n


def test_a_model_writes_it_from_a_real_step_and_repairs_it() -> None:
    groups = episodes(2, np.random.default_rng(0))[0].groups
    reward = LatentReward(advantage=GAE(), writer="writer", about="multiply", weakest=tier_for() or "cgroup")
    writer: Any = Writer()
    state = asyncio.run(reward.prepare(reward.start(), groups, {"writer": writer}))
    assert state["code"] == CODE and reward.roles == {"writer"} and reward.prepares


def test_a_given_encoder_is_checked_first(tmp_path: Path) -> None:
    groups = episodes(2, np.random.default_rng(0))[0].groups
    (tmp_path / "mine.py").write_text(CODE)
    tier = tier_for() or "cgroup"
    mine = LatentReward(advantage=GAE(), encoder=str(tmp_path / "mine.py"), weakest=tier)
    assert asyncio.run(mine.prepare(mine.start(), groups, {}))["code"] == CODE
    bad = LatentReward(advantage=GAE(), encoder=BROKEN, weakest=tier)
    with pytest.raises(UserError, match=r"no encoder of these steps: .*ZeroDivisionError"):
        asyncio.run(bad.prepare(bad.start(), groups, {}))
    with pytest.raises(UserError, match=r"gone\.py' cannot be read"):
        LatentReward(advantage=GAE(), encoder=str(tmp_path / "gone.py")).start()
