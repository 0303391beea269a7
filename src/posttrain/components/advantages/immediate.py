"""Another advantage for the outcome, and the rewards of steps as immediate credit of the tokens of each step.

Source: process advantages, Setlur et al. 2024, arXiv:2410.08146: the log-probability of the step a_h is multiplied by
Q(s_h, a_h) + alpha A(s_h, a_h), and by no later A. Put into the returns, differences of a value telescope: whatever the
prover, their gradient is then alpha times that of the outcome, and nothing is gained.

The rewards of steps are the spans of the score (`SpanRewards`), each at the last token of its step; the tokens after
the step before it have it as credit. The estimator sees the rewards without them. Rollouts without spans have the
estimator's credit alone.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.rewards import SpanRewards
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, FloatArray, Trajectory


@frozen
class Immediate(Advantage):
    """Adds the reward of a step to the advantage of its own tokens only."""

    advantage: Advantage
    """The estimator of the outcome."""

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
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    @property
    def credits_spans(self) -> bool:
        """True."""
        return True

    def start(self) -> State:
        """State of the estimator."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Credit the outcome by the estimator, and each step by its own reward."""
        placed = [_placed(t) for t in batch.trajectories]
        outcome = tuple(
            (reward_T - at_T).astype(np.float32)
            for reward_T, (at_T, _) in zip(batch.token_rewards, placed, strict=True)
        )
        state, credit = self.advantage(state, replace(batch, token_rewards=outcome))
        advantages = tuple(
            (advantage_T + own_T).astype(np.float32)
            for advantage_T, (_, own_T) in zip(credit.advantages, placed, strict=True)
        )
        steps = np.concatenate([np.zeros(0), *(own_T for _, own_T in placed)])
        metrics = dict(credit.metrics) | ({"step_credit_std": float(steps.std())} if len(steps) else {})
        return state, Credit(advantages=advantages, value_targets=credit.value_targets, metrics=metrics)


def _placed(trajectory: Trajectory) -> tuple[FloatArray, FloatArray]:
    """[T] the span rewards where they are given, and [T] on all tokens of their steps."""
    at_T, own_T = (np.zeros(trajectory.num_trained, np.float32) for _ in range(2))
    fact, before = trajectory.fact(SpanRewards), 0
    for token, reward in sorted(fact.span_rewards) if fact is not None else ():
        at_T[token] += reward
        own_T[before : token + 1] = reward
        before = token + 1
    return at_T, own_T
