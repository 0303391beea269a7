"""A bonus for rollouts that differ from the others of their group in hidden states, then another estimator.

Source: Representation-based exploration (RepExp), arXiv:2510.11686, section 4.1, and its recipe
(verl-project/verl-recipe at 48ea0a79, elliptical_reward_manager.py). h is the mean over a rollout's tokens of the last
hidden states of a frozen model, projected at random, less the mean of the group. With C = ridge I + the sum of h h'
over the whole group, its own h included, the bonus is the leverage h' C^-1 h, in [0, 1), and the reward r + beta h'
C^-1 h at the last token.

In a group whose rollouts are all incorrect there is no bonus. Since the estimator that follows usually divides by the
std of the group, the bonus also moves groups that are all correct, and is scaled up there. With few rollouts and a
small ridge differing rollouts all have about 1 - 1/n: what counts are near duplicates. A group of equal rollouts has 0.

The states are the signal ``embedding`` of a role with a projection (``models.reference.projection: 32``), whose random
weights are fixed.

Differs: the projection is drawn once, dense, where the recipe draws a sparse one in every step. The paper writes the
states of the current model; as in its code they are those of a frozen copy.
"""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.statistics.elliptical import Reals, leverage
from posttrain.types import Batch, Credit


@frozen
class Explored(Advantage):
    """Adds the bonus to rewards."""

    advantage: Advantage
    """The estimator of the rewards with the bonus."""
    beta: NonNegativeFloat = 0.01
    """Reward of a bonus of 1; 0 leaves the rewards as they are."""
    ridge: PositiveFloat = 0.01
    """lambda, in units of the states' squares."""
    role: str = "reference"
    """The model whose states are read; it needs a projection."""
    leave_one_out: bool = False
    """Whether C is without the rollout's own states."""
    scale: Literal["none", "std", "z"] = "none"
    """What is done to the bonuses of a group: nothing, divided by their std, or also less their mean."""
    only: Literal["solved", "correct", "all"] = "solved"
    """Which rollouts have a bonus: those of groups with a correct one, correct ones, or all."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The states, and what the estimator needs."""
        return self.advantage.needs | {Signal("embedding", of=self.role)}

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def is_relative(self) -> bool:
        """That of the estimator."""
        return self.advantage.is_relative

    @property
    def chooses(self) -> bool:
        """That of the estimator."""
        return self.advantage.chooses

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """What the estimator reads."""
        return self.advantage.reads

    @property
    def credits_spans(self) -> bool:
        """That of the estimator."""
        return self.advantage.credits_spans

    def start(self) -> State:
        """State of the estimator."""
        return {"inner": self.advantage.start()}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Add the bonuses at the last tokens, and estimate."""
        states = batch.signals[Signal("embedding", of=self.role)]
        rewards, bonuses, first = [r_T.copy() for r_T in batch.token_rewards], list[float](), 0
        for group in batch.groups:
            places = [i for i in range(first, first + len(group)) if len(rewards[i])]
            first += len(group)
            pooled = np.array([np.asarray(states[i], np.float64).reshape(len(states[i]), -1).mean(0) for i in places])
            bonus_N = self._scaled(leverage(pooled, self.ridge, leave_one_out=self.leave_one_out))
            solved = any(batch.trajectories[i].solved for i in places)
            for i, bonus in zip(places, bonus_N.tolist(), strict=True):
                counted = {"all": True, "solved": solved, "correct": batch.trajectories[i].solved}[self.only]
                rewards[i][-1] += self.beta * bonus if counted else 0.0
                bonuses += [bonus] if counted else []
        more = Batch(groups=batch.groups, signals=batch.signals, token_rewards=tuple(rewards), progress=batch.progress)
        inner, credit = self.advantage(state["inner"], more)
        metrics = {**credit.metrics, "explored": len(bonuses) / max(len(rewards), 1)}
        if bonuses:
            metrics["exploration_bonus"] = float(np.mean(bonuses))
        found = Credit(advantages=credit.advantages, value_targets=credit.value_targets, metrics=metrics)
        return {"inner": inner}, found

    def _scaled(self, bonus_N: Reals) -> Reals:
        """The bonuses of a group in units of their std; 0 where they are equal."""
        if self.scale == "none" or not len(bonus_N):
            return bonus_N
        std = float(bonus_N.std())
        moved_N = bonus_N - bonus_N.mean() if self.scale == "z" else bonus_N
        return moved_N / std if std > 1e-12 else np.zeros_like(bonus_N)
