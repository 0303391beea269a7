"""Another advantage whose critic learns only from the tokens of the model that wrote the end of a rollout.

Source: AggreVaTeD of RLGF, arXiv:2306.11816, by its release: the policy writes a prefix and a guide the rest, and the
critic is trained on the rest only, so that it approximates the value of the guide. At the last token of the prefix the
advantage, with lambda 1, is then an estimate of Q - V of the guide.

The credit of all tokens stays; rollouts of a single writer are not changed.
"""

from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.signals import Signal
from posttrain.types import Batch, Credit, FloatArray, Trajectory


@frozen
class LastWriter(Advantage):
    """Leaves out the critic's targets before the last writer's tokens."""

    advantage: Advantage
    """The estimator."""

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

    def start(self) -> State:
        """State of the estimator."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compute the credit; tokens of other writers have no target."""
        state, credit = self.advantage(state, batch)
        targets = tuple(
            _of_last_writer(trajectory, target_T)
            for trajectory, target_T in zip(batch.trajectories, credit.value_targets, strict=bool(credit.value_targets))
        )
        return state, Credit(advantages=credit.advantages, value_targets=targets, metrics=credit.metrics)


def _of_last_writer(trajectory: Trajectory, target_T: FloatArray) -> FloatArray:
    """[T] targets, NaN for the tokens of other writers."""
    written = [segment for segment in trajectory.segments if segment.trained and len(segment)]
    own = [np.full(len(s), s.actor == written[-1].actor) for s in written]
    return np.where(np.concatenate(own), target_T, np.nan).astype(np.float32) if own else target_T
