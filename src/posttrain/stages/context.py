"""What a stage asks of the run around it; the run implements it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.types import Group, Task

if TYPE_CHECKING:
    from posttrain.engines import Sampler
    from posttrain.models import Model
    from posttrain.policies import Policy
    from posttrain.stages.record import StepRecord
    from posttrain.training.learner import Learner

Models = Mapping[str, "Policy"]
"""The models of a run by role."""


class PreviewContext(Protocol):
    """What a stage needs to draw a batch without learning from it."""

    @property
    def name(self) -> str:
        """The stage's name in the recipe."""

    @property
    def seed(self) -> int:
        """Seed of all draws of the stage; a draw is a function of it and of the step."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks to train on."""

    @property
    def model_settings(self) -> "Mapping[str, Model]":
        """The settings of every model of the recipe, by role."""

    def samplers(self, models: Models, *key: int | str) -> "dict[str, Sampler]":
        """Every model ready to sample, by role; the draws are a function of (seed, stage, key)."""

    def sampled_tokens(self, models: Models) -> int:
        """Tokens that the models have sampled until now, whoever asked and whatever became of them."""


class StageContext(PreviewContext, Protocol):
    """What a stage needs to train."""

    attempts: Sequence[Group]
    """Scored groups of the step in progress: recorded as evidence, should an alarm stop the run in it."""

    @property
    def steps_done(self) -> int:
        """Steps of the stage that were finished before; not 0 where a run is continued."""

    @property
    def memory(self) -> dict[str, Any]:
        """State of the stage's parts at that step, as given to `finish_step`; empty at the beginning."""

    def restore(self, learners: "Mapping[str, Learner]") -> None:
        """Put the learners into the state of that step."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the seconds inside towards a phase of the step."""

    def finish_step(
        self,
        steps_done: int,
        record: "StepRecord",
        memory: Mapping[str, Any],
        learners: "Mapping[str, Learner]",
        models: Models,
    ) -> None:
        """Record a step that is complete, and save a checkpoint if one is due. Raises `Interrupted` if asked to stop.

        `memory` must be JSON; it and the states of the learners and models are all that a continued run begins with.
        """
