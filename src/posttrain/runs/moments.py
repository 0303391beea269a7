"""Moments of optimizers that go on from one stage to a later one (`Learning.carried`)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from posttrain.errors import UserError
from posttrain.runs.checks import learnings_of
from posttrain.runs.snapshot import LearnerState
from posttrain.stages import Stage

if TYPE_CHECKING:
    from posttrain.training.learner import Learner

EARLIER: Final = "@earlier"
"""What is appended to a role in a checkpoint, next to the states of the present stage's learners."""


class Moments:
    """What the learners of finished stages left, as far as a later stage goes on with it."""

    def __init__(self, stages: Mapping[str, Stage], found: Mapping[str, LearnerState]) -> None:
        """`found` are the learners of a checkpoint."""
        self._places = [
            i for i, stage in enumerate(stages.values()) if any(own.carried for _, own in learnings_of(stage))
        ]
        self._left = {role.removesuffix(EARLIER): state for role, state in found.items() if role.endswith(EARLIER)}

    def take(self, learners: "Mapping[str, Learner]", place: int) -> None:
        """Keep what the learners of a stage leave, if a later stage may go on with it."""
        if self._wanted(place + 1):
            for role, learner in _with_optimizers(learners).items():
                self._left[role] = {"optimizer": learner.settings.optimizer.kind}, learner.state()[1]

    def states(self, place: int) -> dict[str, LearnerState]:
        """What a checkpoint has of it, from which the stage `place` continues."""
        return {role + EARLIER: state for role, state in self._left.items()} if self._wanted(place) else {}

    def give(self, learners: "Mapping[str, Learner]", stage: str) -> None:
        """Put moments into the learners of a stage that begins, where they go on with them.

        Masters in float32 are those of the weights as they are. Raises `UserError` for moments of other weights.
        """
        for role, learner in _with_optimizers(learners).items():
            if not learner.settings.carried:
                continue
            kind = learner.settings.optimizer.kind
            numbers, tensors = self._left.get(role, ({}, {}))
            if numbers.get("optimizer") != kind:
                found = f"its last one has '{numbers['optimizer']}'" if numbers else "no earlier stage trains it"
                raise UserError(
                    f"stages.{stage}: learner.carried goes on with the moments of the optimizer '{kind}' for the role "
                    f"'{role}', and {found}; leave it out, or train both stages alike"
                )
            moments = {name: tensor for name, tensor in tensors.items() if not name.endswith("|master")}
            other = {name.rpartition("|")[0] for name in moments} ^ learner.parameters.keys()
            if other:
                raise UserError(
                    f"stages.{stage}: learner.carried goes on with the moments of the role '{role}', but the earlier "
                    f"stage trained other weights, '{min(other)}' for example; leave it out, or train the same ones"
                )
            learner.workers.load_state(learner, moments)

    def _wanted(self, place: int) -> bool:
        return any(other >= place for other in self._places)


def _with_optimizers(learners: "Mapping[str, Learner]") -> "dict[str, Learner]":
    """Without those that update a model in their own way (a sparse autoencoder's) and have no moments."""
    from posttrain.training.learner import Learner

    return {role: learner for role, learner in learners.items() if isinstance(learner, Learner)}
