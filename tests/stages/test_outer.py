"""Learned weights of rewards: the implicit derivative against the inner level solved again, and where learning ends."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.methods.rewards.barfi import barfi
from posttrain.stages.implicit import curvature_product, dot, passed_on
from posttrain.stages.outer import Outer, advantages, discounted, sigmoid, weighed, weighted_gradient
from posttrain.types import Group, Score, Segment, Task, Tokens, Trajectory

PRIMARY = torch.tensor([1.0, 0.9, 0.0], dtype=torch.float64)
MISLEADING = torch.tensor([0.0, 1.0, 0.2], dtype=torch.float64)
DECAY = 0.1


class Bandit:
    """Three arms, all of them in each batch by their behavior probabilities, so that nothing is random."""

    def __init__(self, extra: torch.Tensor) -> None:
        self.parts = torch.stack([PRIMARY, extra])
        self.theta = torch.zeros(3, dtype=torch.float64)
        self.behavior = torch.full((3,), 1 / 3, dtype=torch.float64)

    def field(self, value: torch.Tensor, decay: float = 0.0) -> list[torch.Tensor]:
        """The importance-weighted policy gradient of a value of each arm, less the decay."""
        theta = self.theta.clone().requires_grad_()
        logp = theta.log_softmax(0)
        ratio = logp.detach().exp() / self.behavior
        gain = value - (self.behavior * value).sum()
        (found,) = torch.autograd.grad((self.behavior * ratio * gain * logp).sum(), theta)
        return [found - decay * self.theta]

    def settle(self, weights: torch.Tensor, rounds: int = 4000) -> None:
        for _ in range(rounds):
            self.theta = self.theta + 0.5 * self.field(weights @ self.parts, DECAY)[0]

    def right(self) -> float:
        return float(self.theta.softmax(0) @ PRIMARY)

    def slopes(self, weights: torch.Tensor, terms: int) -> torch.Tensor:
        def product(direction: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            return curvature_product(lambda: self.field(weights @ self.parts, DECAY), [self.theta], direction, 1e-4)

        through = passed_on(self.field(PRIMARY), product, step=0.5, terms=terms)
        return torch.tensor([dot(through, self.field(part)) for part in self.parts])


@pytest.mark.slow
def test_the_implicit_derivative_is_that_of_the_inner_level_solved_again() -> None:
    weights = torch.tensor([1.0, 0.4], dtype=torch.float64)
    own = Bandit(MISLEADING)
    own.settle(weights)
    by_rule = own.slopes(weights, terms=400)
    for place in range(2):
        ends = []
        for sign in (1, -1):
            moved, other = weights.clone(), Bandit(MISLEADING)
            moved[place] += sign * 1e-4
            other.theta = own.theta.clone()
            other.settle(moved, 1500)
            ends.append(other.right())
        assert float(by_rule[place]) == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-6)
    assert float(by_rule.abs().min()) > 1e-3
    few = own.slopes(weights, terms=2)
    assert float(few @ by_rule) > 0.0 and float(few.norm()) < float(by_rule.norm()), "a few terms: shorter"


def raised(start: float, rounds: int = 40) -> tuple[Bandit, torch.Tensor]:
    own, weights = Bandit(MISLEADING), torch.tensor([1.0, start], dtype=torch.float64)
    own.settle(weights, 400)
    for _ in range(rounds):
        weights = weights + 5.0 * own.slopes(weights, terms=20)
        own.settle(weights, 60)
    return own, weights


@pytest.mark.slow
def test_a_misleading_bonus_ends_harmless_and_the_naive_start_stays() -> None:
    own, weights = raised(0.0)
    assert own.right() > 0.9 and own.theta.argmax() == 0 and float(weights[1]) < 0.0
    naive = Bandit(MISLEADING)
    naive.settle(torch.tensor([1.0, 1.0], dtype=torch.float64))
    assert naive.right() == pytest.approx(0.851, abs=1e-3)
    own, weights = raised(1.0)
    assert own.right() == pytest.approx(0.879, abs=4e-3) and own.theta.argmax() == 1, "learning is local"
    assert float(weights[1]) > 1.0


def test_a_product_leaves_the_parameters_as_they_were() -> None:
    given = torch.tensor([0.3, -0.7])
    kept = given.clone()
    matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = curvature_product(lambda: [matrix @ given], [given], [torch.tensor([1.0, 1.0])], 1e-2)
    assert found[0].tolist() == pytest.approx([3.0, 7.0], abs=1e-3) and torch.equal(given, kept)
    assert curvature_product(lambda: [given], [given], [torch.zeros(2)], 1e-2)[0].tolist() == [0.0, 0.0]
    # 0.1 (x + (1 + 0.1 * 2) x) for H = 2
    assert passed_on([torch.ones(1)], lambda x: [2 * x[0]], step=0.1, terms=2)[0].item() == pytest.approx(0.22)


def rollout(tokens: int, **parts: float) -> Trajectory:
    score = Score(value=9.0, status="ok", parts={name: Score(value=own, status="ok") for name, own in parts.items()})
    segment = Segment(actor="policy", token_ids=np.zeros(tokens, np.int64), text="a", trained=True)
    return Trajectory(task=Task(key="t", prompt="t"), segments=(segment,), stop_reason="stop", score=score)


def test_advantages_by_hand_and_their_derivative_in_the_discount() -> None:
    group = Group(key="t", trajectories=(rollout(3, a=1.0, b=2.0), rollout(1, a=0.0, b=0.0)))
    both = [t.score.value for t in (weighed(t, {"a": 1.0, "b": -0.5, "none": 7.0}) for t in group) if t.score]
    assert both == [0.0, 0.0]
    own = advantages([group], np.array([1.0, 0.0]), 0.5)  # less the mean, 0.5
    assert own[0].tolist() == pytest.approx([0.125, 0.25, 0.5]) and own[1].tolist() == [-0.5]
    v, step = 0.3, 1e-5
    ends = [advantages([group], np.array([1.0, 0.0]), sigmoid(v + sign * step))[0].astype(float) for sign in (1, -1)]
    slope = discounted([group], np.array([1.0, 0.0]), sigmoid(v))[0]
    assert slope.tolist() == pytest.approx(((ends[0] - ends[1]) / (2 * step)).tolist(), abs=5e-3)
    assert slope[-1] == 0.0, "the last token has no discount"


def test_the_loss_has_the_importance_weighted_gradient() -> None:
    logp_T = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    old_T = torch.tensor([-1.5, -2.0, -0.5], dtype=torch.float64)
    one = torch.ones(2)
    tokens = Tokens(
        logp_T=logp_T,
        behavior_logp_T=old_T,
        old_logp_T=old_T,
        advantage_T=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
        sequence_T=torch.tensor([0, 0, 1]),
        group_N=torch.tensor([0, 0]),
        turn_T=torch.zeros(3, dtype=torch.int64),
        length_N=torch.tensor([2, 1]),
        reward_N=one,
        solved_N=one,
        group_solved_N=one,
    )
    weighted_gradient(tokens).loss_T.sum().backward()
    assert logp_T.grad is not None
    assert logp_T.grad.tolist() == pytest.approx([-math.exp(0.5), -2 * math.exp(0.5), -3.0])


def test_the_outer_step_is_adam_and_takes_off_the_cost_of_the_discount() -> None:
    stage = barfi().stages["outer"]
    assert isinstance(stage, Outer)
    stage = replace(stage, discount_cost=1.0)
    memory = stage.start()
    stage.move(memory, {"correct": 2e-3, "bonus": -5e-4, "v": 0.0}, 0)
    assert memory["weights"] == {"correct": pytest.approx(1.1, abs=1e-5), "bonus": pytest.approx(0.2, abs=1e-5)}
    assert sigmoid(memory["v"]) < 0.999, "a cost makes the discount smaller"
    before = {**memory["weights"]}
    stage.move(memory, dict.fromkeys(("correct", "bonus", "v"), 0.0), 1)
    assert memory["weights"]["correct"] > before["correct"], "moments are part of the memory"


def test_a_part_that_the_reward_does_not_have_is_refused_before_anything_is_sampled() -> None:
    stage = barfi().stages["outer"]
    assert isinstance(stage, Outer)
    with pytest.raises(UserError, match="the part 'bonsu', and the reward sum has the parts correct, bonus"):
        replace(stage, weights={"correct": 1.0, "bonsu": 1.0}).check_parts()
