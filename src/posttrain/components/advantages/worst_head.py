"""Another advantage, of rewards in which the worst head of an ensemble is that of the whole batch.

Source: "Reward-Robust RLHF in LLMs", arXiv:2409.15360, equation 7: alpha E[nominal] + (1 - alpha) min_k E[r_k]. The
reward `robust` takes the minimum of each sample; here all samples of a step have the head with the lowest mean over
the step in its place (of equals the first). A mean of minima is at most the minimum of the means, so that rewards rise.

Rollouts whose score does not have the heads as parts keep it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.errors import UserError
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, FloatArray, Trajectory


@frozen
class WorstHead(Advantage):
    """Puts one head for the whole batch in the place of the worst head of each rollout."""

    advantage: Advantage
    """The estimator."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """As in the reward `robust`."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.advantage.needs

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def is_relative(self) -> bool:
        """As the estimator."""
        return self.advantage.is_relative

    @property
    def chooses(self) -> bool:
        """As the estimator."""
        return self.advantage.chooses

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    def start(self) -> State:
        """State of the estimator."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Change the rewards at the last tokens, then credit them by the estimator."""
        found = [_heads(t) for t in batch.trajectories]
        known = [(t, heads) for t, heads in zip(batch.trajectories, found, strict=True) if heads]
        if not known:
            return self.advantage(state, batch)
        for trajectory, heads in known:
            self._check(trajectory, heads)
        means = np.array([heads for _, heads in known]).mean(0)
        worst = int(means.argmin())
        changed = tuple(
            _at_last(reward_T, (1 - self.alpha) * (heads[worst] - min(heads))) if heads else reward_T
            for reward_T, heads in zip(batch.token_rewards, found, strict=True)
        )
        state, credit = self.advantage(state, replace(batch, token_rewards=changed))
        metrics = {**credit.metrics, "worst_head": float(worst), "worst_head_reward": float(means[worst])}
        return state, replace(credit, metrics=metrics)

    def _check(self, trajectory: Trajectory, heads: Sequence[float]) -> None:
        """Raise `UserError` where the reward was mixed by another alpha."""
        score = trajectory.score
        assert score is not None and "nominal" in score.parts, "it has heads"
        expected = self.alpha * score.parts["nominal"].value + (1 - self.alpha) * min(heads)
        if not math.isclose(score.value, expected, rel_tol=1e-5, abs_tol=1e-5):
            raise UserError(
                f"advantage.alpha={self.alpha:g} and the reward's alpha differ: a rollout has the reward "
                f"{score.value:.4g} where this alpha gives {expected:.4g}; set both to the same, with reward=robust"
            )


def _heads(trajectory: Trajectory) -> list[float]:
    """Scores of the heads by number; empty where the score has none."""
    parts = trajectory.score.parts if trajectory.score is not None else {}
    found: list[float] = []
    while f"head_{len(found)}" in parts:
        found.append(parts[f"head_{len(found)}"].value)
    return found


def _at_last(reward_T: FloatArray, more: float) -> FloatArray:
    """The rewards, with more at the last token."""
    changed_T = np.array(reward_T, np.float32)
    changed_T[-1:] += more
    return changed_T
