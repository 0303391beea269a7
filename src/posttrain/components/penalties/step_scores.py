"""Process scores: each tagged step is rewarded by a model's score at its closing tag, the last one with the answer.

Source: Reinforced Functional Token Tuning, Zhang et al. 2025, arXiv:2502.13389, and its release (github.com/sastpg/RFTT
at 948f89ee, experience_maker.py). With v_k the score of the process model after step k of K, and s the reward of the
answer:

    r_k = v_k at the closing tag of step k < K        r_K = w s + (1 - w) v_K at the last token        w = .6

A rollout that is no path of the grammar has `malformed` (-.2) at its last token, whatever its answer. With `place`
``last`` the mean of all r_k is the only reward, at the last token. What the model writes is held within [0, 1].

Differs: closing tags are found in the text of the tokens, and the release looks for a pair of token ids; it calls
malformed what has another number of scores than of closing tags. Rewards of the steps are added up by a return to go,
as there, so that more steps can mean more reward; the mean does not have this.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.components.rollouts import Spans
from posttrain.datasets.grammars import FUNCTIONS, Grammar
from posttrain.signals import Signal
from posttrain.types import FloatArray, Trajectory, value_of


@frozen
class StepScores(Penalty):
    """Replaces the reward of a rollout by those of its steps."""

    grammar: Grammar = FUNCTIONS
    """Which steps may follow which."""
    outcome: Annotated[float, Field(ge=0.0, le=1.0)] = 0.6
    """w: weight of the answer's reward in that of the last step."""
    malformed: float = -0.2
    """Reward of a rollout that is no path of the grammar."""
    place: Literal["steps", "last"] = "steps"
    """Where the rewards are: each at its own step, or their mean at the last token."""
    role: str = "process"
    """The model with a reward head that scores steps."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's score after each token."""
        return frozenset({Signal("score", of=self.role)})

    @property
    def tags(self) -> frozenset[str]:
        """The kinds of steps."""
        return frozenset(self.grammar.kinds)

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] the rewards of the steps, minus the score at the last token."""
        score_T = np.clip(signals[Signal("score", of=self.role)].astype(np.float64), 0.0, 1.0)
        change_T = np.zeros(trajectory.num_trained, np.float64)
        if not len(change_T):
            return change_T.astype(np.float32)
        outcome, path = value_of(trajectory), self.grammar.read(trajectory.completion)
        spans = trajectory.fact(Spans)
        ends = sorted(end for places in spans.closings.values() for end in places) if spans is not None else []
        if path.fault or len(ends) != len(path.steps):
            change_T[-1] = self.malformed - outcome
            return change_T.astype(np.float32)
        reward_K = score_T[ends]
        reward_K[-1] = self.outcome * outcome + (1.0 - self.outcome) * reward_K[-1]
        if self.place == "last":
            change_T[-1] = reward_K.mean()
        else:
            change_T[ends[:-1]] = reward_K[:-1]
            change_T[-1] += reward_K[-1]
        change_T[-1] -= outcome
        return change_T.astype(np.float32)
