"""A critic of utterances: targets and losses by hand, values of a chain, and resuming."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.environments import Verdict as Opened
from posttrain.components.environments.lock import Dial
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.reducers.constant import Constant
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.independent import Independent
from posttrain.errors import UserError
from posttrain.methods.credit.archer import archer
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.signals import ADVANTAGE, SCORES, VALUE
from posttrain.stages import Models, hierarchical
from posttrain.stages.hierarchical import Hierarchical, baseline_errors, squared_errors
from posttrain.stages.stored import StoredTurn
from posttrain.types import Completion, FloatArray
from tests.builders import tokens
from tests.stages.resuming import cut_off_and_resumed

Train = Callable[[Recipe], tuple[Models, RunStore]]
STAGE = Hierarchical(
    steps=1,
    prompts=1,
    rollout=Independent(),
    reward=Verdict(),
    objective=PolicyGradient(),
    reducer=Constant(length=1.0),
    gamma=0.5,
)


def turn(reward: float, *, last: bool = False) -> StoredTurn:
    return StoredTurn(
        task="t",
        context=np.array([1]),
        action=np.array([2]),
        logp=np.zeros(1, np.float32),
        reward=reward,
        following=None if last else np.array([1, 2, 3]),
        source="policy",
    )


FRESH = Completion(token_ids=np.array([9]), text="", logp=np.zeros(1, np.float32), stop_reason="stop", version=0)
VALUES = {(1,): [0, 0, 7, 8], (1, 2, 3): [0, 0, 4, 2], (1, 9): [5, 6, 0, 0]}


def read(_: object, texts: Sequence[Any], __: object) -> FloatArray:
    return np.array([VALUES[tuple(ids.tolist())] for ids in texts], np.float32)


def test_targets_have_no_minimum_over_heads_and_the_advantage_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical, "read_outputs", read)
    turns, fresh = [turn(1.0), turn(3.0, last=True)], [FRESH, FRESH]
    target = STAGE._targets(turns, fresh, None, None)  # type: ignore[arg-type]
    assert target.tolist() == [[1 + 0.5 * 4, 1 + 0.5 * 2, 5, 6], [3, 3, 5, 6]]
    assert STAGE._advantages(turns, fresh, None, None).tolist() == [5.0 - 7.0] * 2  # type: ignore[arg-type]


def test_the_loss_by_hand_and_its_gradient() -> None:
    """At the place before the turn the errors of V, at its end those of Q, each of both heads."""
    score = torch.tensor([[9.0, 9.0, 1.0, 3.0], [2.0, 0.0, 9.0, 9.0]], dtype=torch.float64, requires_grad=True)
    own = replace(tokens([[0.0, 0.0]], advantage=[[0.0, 0.0]], group_N=[0]), turn_T=torch.tensor([0, 1]))
    target = np.array([[1.0, 1.0, 0.0, 1.0]], np.float32)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return squared_errors(replace(own, signals={SCORES: x}), target).loss_T

    assert loss(score).tolist() == [1.0 + 4.0, 1.0 + 1.0]
    assert torch.autograd.gradcheck(loss, score)
    metrics = squared_errors(replace(own, signals={SCORES: score}), target).metrics
    assert metrics["q"].tolist() == [1.0] and metrics["v"].tolist() == [2.0] and metrics["q_error"].tolist() == [1.0]


def test_the_error_of_the_baseline_by_hand_and_its_gradient() -> None:
    value = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    own = tokens([[0.0, 0.0]], advantage=[[2.0, 2.0]], group_N=[0])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return baseline_errors(replace(own, signals={VALUE: x})).loss_T

    assert loss(value).tolist() == [1.5**2, 3.0**2]
    assert torch.autograd.gradcheck(loss, value)


def test_tokens_have_the_advantage_of_their_turn_less_the_baseline_before_its_update(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new baseline is 0 everywhere, so that the first update of the policy has the advantages themselves."""
    seen: list[FloatArray] = []
    given: list[FloatArray] = []
    fit_policy, advantages = Hierarchical._fit_policy, Hierarchical._advantages

    def noted(self: Hierarchical, examples: Any, *rest: Any) -> Any:
        seen.append(np.concatenate([e.columns[ADVANTAGE] for e in examples]))
        counts.append([len(e.positions) for e in examples])
        return fit_policy(self, examples, *rest)

    def positive(self: Hierarchical, *rest: Any) -> FloatArray:
        given.append(np.abs(advantages(self, *rest)) + 1)
        return given[-1]

    counts: list[list[int]] = []
    monkeypatch.setattr(Hierarchical, "_fit_policy", noted)
    monkeypatch.setattr(Hierarchical, "_advantages", positive)
    _, record = train(override(small(), ["rl.policy_updates=2", "rl.steps=2"]))
    assert np.array_equal(seen[0], np.repeat(given[0], counts[0]))
    assert (seen[1] < np.repeat(given[1], counts[1])).all(), "the baseline has moved towards them"
    assert record.metrics()[-1]["baseline/error"] > 0


def test_roles_and_outputs() -> None:
    recipe = archer()
    stage = recipe.stages["rl"]
    assert stage.roles == {"policy", "critic", "target_critic", "baseline"}
    assert {need.role for need in stage.needed(recipe.models)} >= {"critic", "target_critic", "baseline"}
    without = replace(stage, baseline_role=None)
    assert without.roles == {"policy", "critic", "target_critic"}
    models = {**recipe.models, "critic": replace(recipe.models["critic"], outputs=2)}
    with pytest.raises(UserError, match=r"reads 4 outputs of the role 'critic'.*models\.critic\.outputs=4"):
        stage.needed(models)


SHORT = (
    "sft.max_steps=1",
    "rl.steps=3",
    "rl.prompts=1",
    "rl.rollout.n=2",
    "rl.batch=4",
    "rl.critic_updates=2",
    "rl.policy_updates=1",
    "rl.warmup_steps=1",
    "evaluation.holdout=2",
    "threads=1",
    "checkpoints.every_steps=1",
)


def small() -> Recipe:
    return override(archer(), list(SHORT))


@pytest.mark.slow
def test_values_of_a_chain_are_gamma_to_the_turns_left(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a policy that writes what is stored, and a reward of 1 at the end of each episode."""

    def stored(_: object, turns: Sequence[StoredTurn], __: object) -> list[Completion]:
        return [replace(FRESH, token_ids=t.action, logp=np.zeros(len(t.action), np.float32)) for t in turns]

    monkeypatch.setattr(Hierarchical, "_fresh", stored)
    monkeypatch.setattr(Dial, "verdict", lambda self: Opened(value=1.0, solved=True))
    changes = ["rl.steps=3", "rl.critic_updates=15", "rl.batch=16", "rl.warmup_steps=3", "rl.gamma=0.5", "rl.tau=0.5"]
    changes.append("rl.critic_learner.optimizer.lr=3e-3")
    models, record = train(override(small(), changes))
    assert record.metrics()[-1]["stored_turns"] == 3 * 2 * 3
    assert models["policy"].version == 1, "it does not learn before the critic's own steps are over"
    assert record.metrics()[-1]["critic/v"] == pytest.approx((1 + 0.5 + 0.25) / 3, abs=0.12)


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not(train: Train, tmp_path: Path) -> None:
    whole, record = train(small())
    resumed, again = cut_off_and_resumed(small(), tmp_path / "cut", at=3)
    assert [json.dumps(e) for e in again.metrics()] == [json.dumps(e) for e in record.metrics()]
    for role in ("policy", "critic", "target_critic", "baseline"):
        for name, tensor in whole[role].state_dict().items():
            assert torch.equal(tensor, resumed[role].state_dict()[name]), name
