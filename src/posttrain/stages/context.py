"""What a stage requires of the run around it, as protocols that the run implements."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from posttrain.types import Group, Task

if TYPE_CHECKING:
    from posttrain.components.timetables import Streams
    from posttrain.engines import Sampler
    from posttrain.models import Model
    from posttrain.policies import Policy
    from posttrain.stages.record import StepRecord
    from posttrain.training.learner import Learner

Result = TypeVar("Result")
Models = Mapping[str, "Policy"]
"""The models of a run by role."""


class PreviewContext(Protocol):
    """What a stage needs to draw a batch without learning from it."""

    errors: list[str]
    """Errors that a preview met; a stage appends its own."""

    @property
    def name(self) -> str:
        """The stage's name in the recipe."""

    @property
    def seed(self) -> int:
        """Seed of all draws of the stage. A draw is a function of the seed and the step."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks to train on."""

    @property
    def further(self) -> Mapping[str, Sequence[Task]]:
        """The other tasks that the stage uses, by name: those of `Stage.further`."""

    @property
    def held_out(self) -> Sequence[Task]:
        """The tasks of the evaluation, which tasks that are made in the run must not repeat."""

    @property
    def model_settings(self) -> "Mapping[str, Model]":
        """The settings of every model of the recipe, by role."""

    def samplers(self, models: Models, *key: int | str) -> "dict[str, Sampler]":
        """A sampler for every model, by role; the draws are a function of (seed, stage, key)."""

    def sampled_tokens(self, models: Models) -> int:
        """Tokens that the models have sampled so far, for all requests, also those that were dropped."""


class StageContext(PreviewContext, Protocol):
    """What a stage needs to train."""

    groups: Sequence[Group]
    """Scored groups of the step in progress, recorded if an alarm stops the run in that step."""

    @property
    def ahead(self) -> int:
        """Steps that rollouts are sampled ahead (`Timetable.ahead`); 0 samples a step when it is learned from."""

    @property
    def overlaps(self) -> bool:
        """Whether several of these are sampled at a time (`Timetable.overlaps`)."""

    def before_saving(self, store: Callable[[], None]) -> None:
        """`store` is called before each checkpoint, to put what goes on into the memory of the stage."""

    @property
    def streams(self) -> "Streams | None":
        """How rollouts go on over changes of the weights (`Timetable.streams`)."""

    @property
    def replayed(self) -> Mapping[int, Mapping[str, Any]] | None:
        """The journal of another run of this stage to compute again, by step from 0; None in any other run."""

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Write what a step was sampled from into the journal of the run. It is JSON with its ``stage_step``."""

    def beside(self, models: Models, work: Callable[[], Result]) -> Callable[[], Result]:
        """Begin work that samples with the weights as they are now; returns what waits for its result.

        It goes on while the models are changed where samplers are processes of their own, and is done at once where
        they are not.
        """

    @property
    def steps_done(self) -> int:
        """Steps of the stage that are done; not 0 where a run is continued."""

    @property
    def memory(self) -> dict[str, Any]:
        """State of the stage's parts at that step, as given to `finish_step`; empty at the start."""

    def goes_on(self, steps_done: int) -> bool:
        """Whether the stage has a further step after `steps_done`; false once the run's budget is spent."""

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
        """Record a complete step, and save a checkpoint if one is due. Raises `Interrupted` on a request to stop.

        `memory` must be JSON. It and the states of the learners and models are all that a continued run starts from.
        """
