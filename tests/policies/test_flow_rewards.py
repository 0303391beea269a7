"""A reward head of a flow: which point it scores, learning from pairs, weights by task, and shared draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.noises.constant import Constant
from posttrain.components.shapes.flow import Flow
from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.signals import SCORE
from posttrain.stages.pairs import pair_trajectories, weights_of
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import example_of
from posttrain.types import Preference, Task

CPU = torch.device("cpu")
TASK = Task(key="t", prompt="0.5")


def models(token: Any = "step") -> tuple[Any, Any]:
    shape = Flow(dims=2, condition=1, steps=3, width=8, noise=Constant(), token=token)
    policy = load_policy("policy", Model(source="new", shape=shape, trained=True), {}, CPU)
    reward: Any = load_policy(
        "reward", Model(source="role:policy", head="reward", trained=True), {"policy": policy}, CPU
    )
    with torch.no_grad():
        reward.rating[-1].weight.copy_(torch.randn(1, 8, generator=torch.Generator().manual_seed(0)))
    return policy, reward


def by_hand(reward: Any, x: float, y: float) -> float:
    with torch.no_grad():
        return float(reward.rating(torch.tensor([[x, y, x * x, y * y, 0.5]])))


@pytest.mark.parametrize("token", ["step", "chain"])
def test_the_end_point_is_scored(token: Any) -> None:
    policy, reward = models(token)
    prompt, sampler = policy.prompt(TASK), Native().serve(policy, 0).bind("t")
    (made,) = wait_for(sampler.sample(prompt.token_ids, 1, Sampling(max_tokens=8), prompt.vectors))
    ids, vectors = np.concatenate([prompt.token_ids, made.token_ids]), np.concatenate([prompt.vectors, made.vectors])
    server = Native().serve(reward, 0).bind("r")
    x, y = map(float, made.text.split())
    assert wait_for(server.score(ids, vectors=vectors)) == pytest.approx(by_hand(reward, x, y), abs=1e-5)
    assert wait_for(server.scores(ids, vectors=vectors)).shape == (1,)
    for other, bad in ((sampler, vectors), (server, None)):
        with pytest.raises(UserError, match="reward"):
            wait_for(other.score(ids, vectors=bad))
    with pytest.raises(UserError, match="no end point"):
        wait_for(server.score(ids[:1], vectors=vectors[:1]))


@pytest.mark.parametrize("token", ["step", "chain"])
def test_both_sides_of_a_pair_have_the_same_draws(token: Any) -> None:
    _, reward = models(token)
    pair = Preference(chosen="1 2", rejected="-1 0.5")
    chosen, rejected = pair_trajectories(reward, TASK, pair, 0, 1, 2)
    other = pair_trajectories(reward, TASK, pair, 0, 2, 2)[0]
    np.testing.assert_array_equal(chosen.segments[-1].vectors, rejected.segments[-1].vectors)
    assert (chosen.segments[-1].vectors != other.segments[-1].vectors).any()
    for side, point in ((chosen, (1.0, 2.0)), (rejected, (-1.0, 0.5))):
        found = evaluate_examples(reward, [example_of(side, {})], frozenset({SCORE}), max_tokens=64)[0][SCORE]
        np.testing.assert_allclose(found, by_hand(reward, *point), atol=1e-5)


def test_it_is_saved_and_read_again(tmp_path: Path) -> None:
    policy, reward = models()
    reward.save(tmp_path / "reward")
    again: Any = load_policy("reward", Model(source=str(tmp_path / "reward"), head="reward"), {}, CPU)
    assert by_hand(again, 1.0, 2.0) == by_hand(reward, 1.0, 2.0)
    policy.save(tmp_path / "policy")
    fresh: Any = load_policy("reward", Model(source=str(tmp_path / "policy"), head="reward"), {}, CPU)
    assert by_hand(fresh, 1.0, 2.0) == 0.0
    with pytest.raises(UserError, match="one output"):
        load_policy("reward", Model(source="role:policy", head="reward", outputs=2), {"policy": policy}, CPU)


def test_pairs_of_a_task_share_one_weight() -> None:
    pair = Preference(chosen="a", rejected="b")
    tasks = [Task(key=key, prompt="p") for key in ("x", "y", "y", "y")]
    weights = weights_of([(task, pair) for task in tasks])
    np.testing.assert_allclose(weights, [2.0, 2 / 3, 2 / 3, 2 / 3], rtol=1e-6)
