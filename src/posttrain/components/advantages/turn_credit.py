"""A score of the whole rollout from its turns, compared within the group, and spread over the turns by a credit.

Source: UserRL, arXiv:2509.19736, and its released code. With r_t the reward of turn t (from 0) and gamma = 0.8:

    score     r2g: sum gamma^t r_t      mean: the mean of r_t (called Sum in the code)      sum: the sum
    A         (score - mean) / (std + 1e-6) over the group, std with ddof 1; a group of one keeps its score
    credit    equalized: 1     r2g: sum over u >= t of gamma^(u-t) r_u     naive: r_t
              em: 0.5 + 0.5 (1 - exp(-2 r_t)) / (1 - exp(-2)), 0 gives 0.5 and 1 gives 1

A token has the credit c of its turn, rescaled so that the mean over tokens with a credit is A: c A n / sum(c). Where
the credits sum to 0, all advantages are 0: with `r2g` and `naive`, a rollout without any reward is not learned from,
even where its A is negative. `equalized` and `em` learn from it.

Differs: the score of a reward component (a verdict) counts as reward of the last turn. The code rounds to four digits.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals
from posttrain.types import Batch, Credit, FloatArray, IntArray, Trajectory

EPSILON = 1e-6


@frozen
class TurnCredit(Advantage):
    """Score and credit of turns."""

    score: Literal["r2g", "mean", "sum"] = "r2g"
    """What rollouts of a group are compared by."""
    credit: Literal["equalized", "r2g", "em", "naive"] = "equalized"
    """How an advantage is spread over turns."""
    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 0.8
    """Discount per turn, in [0, 1]."""

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Their sum, where neither the score nor the credit depends on the turn of a reward."""
        return "sum" if self.score != "r2g" and self.credit == "equalized" else "tokens"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Score each rollout, compare, and spread."""
        turns = [_turn_of_token(t) for t in batch.trajectories]
        rewards = [_per_turn(r_T, turn_T) for r_T, turn_T in zip(batch.token_rewards, turns, strict=True)]
        score_N = np.array([self._score(reward) for reward in rewards], np.float64)
        advantage_N = np.zeros(len(score_N))
        for group in np.unique(batch.group_N):
            own = batch.group_N == group
            alone = own.sum() == 1
            mean, std = (0.0, 1.0) if alone else (score_N[own].mean(), score_N[own].std(ddof=1))
            advantage_N[own] = (score_N[own] - mean) / (std + EPSILON)
        advantages = tuple(
            self._spread(a, reward, turn_T).astype(np.float32)
            for a, reward, turn_T in zip(advantage_N, rewards, turns, strict=True)
        )
        unlearned = [bool(len(a_T)) and not a_T.any() for a_T in advantages]
        metrics = {"turn_credit/without_credit": float(np.mean(unlearned))} if unlearned else {}
        return state, Credit(advantages=advantages, metrics=metrics)

    def _score(self, reward: Reals) -> float:
        if not len(reward):
            return 0.0
        if self.score == "r2g":
            return float((self.gamma ** np.arange(len(reward)) * reward).sum())
        return float(reward.mean() if self.score == "mean" else reward.sum())

    def _spread(self, advantage: float, reward: Reals, turn_T: IntArray) -> Reals:
        """[T] the credit of each token's turn, rescaled to the advantage."""
        credit_T = self._credits(reward)[turn_T] if len(turn_T) else np.zeros(0)
        total = credit_T.sum()
        if abs(total) < EPSILON:
            return np.zeros(len(turn_T))
        scaled: Reals = credit_T * advantage * np.count_nonzero(credit_T) / total
        return scaled

    def _credits(self, reward: Reals) -> Reals:
        if self.credit == "equalized":
            return np.ones(len(reward))
        if self.credit == "em":
            concave: Reals = 0.5 + 0.5 * (1 - np.exp(-2 * reward)) / (1 - math.exp(-2))
            return concave
        credits = reward.copy()
        if self.credit == "r2g":
            for turn in reversed(range(len(credits) - 1)):
                credits[turn] += self.gamma * credits[turn + 1]
        return credits


def _turn_of_token(trajectory: Trajectory) -> IntArray:
    """[T] how many turns with trained tokens came before that of each token."""
    trained = [s for s in trajectory.segments if s.trained and len(s)]
    numbers = {turn: place for place, turn in enumerate(dict.fromkeys(s.turn for s in trained))}
    return np.repeat([numbers[s.turn] for s in trained], [len(s) for s in trained]).astype(np.int64)


def _per_turn(reward_T: FloatArray, turn_T: IntArray) -> Reals:
    """[turns] sum of the token rewards of each turn."""
    return np.bincount(turn_T, weights=reward_T).astype(np.float64) if len(turn_T) else np.zeros(0)
