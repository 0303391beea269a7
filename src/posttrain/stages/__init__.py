"""Stages: the phases of a recipe. Each starts from the models that the previous one returned.

Contract: a stage continues from `steps_done`, `memory` and `restore` of its context, bit for bit as if it had never
stopped. All its draws are functions of (seed, step). It ends every step with `finish_step`. A stage that trains gets
all of this from `posttrain.stages.fit`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from posttrain.component import Component
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.components.timetables import Timetable
from posttrain.models import Model
from posttrain.stages.context import Models, PreviewContext, StageContext
from posttrain.stages.needs import Need
from posttrain.types import Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

__all__ = ["Given", "Models", "PreviewContext", "Stage", "StageContext"]

Given = Literal["demonstrations", "preferences", "rated completions"]
"""Texts that come with tasks."""
SHARED: Final = (
    "best",
    "columns",
    "context",
    "fit",
    "implicit",
    "loss",
    "memory",
    "needs",
    "pairs",
    "prompts",
    "record",
    "scored_rounds",
    "states",
    "stored",
    "weights",
)
"""Modules of this folder that are not stages but are used by several of them."""


class Stage(Component):
    """One phase of training."""

    tasks: Tasks | None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, in stages that have such a field; None takes all."""

    @property
    def samples_ahead(self) -> bool:
        """Whether it follows a recipe's schedule (`StageContext.ahead`)."""
        return False

    def check_timetable(self, timetable: Timetable) -> None:
        """Raise `UserError` for a timetable that it cannot follow; asked of stages that follow one."""

    @property
    def further(self) -> Mapping[str, Tasks]:
        """Sources of tasks that the stage uses beside its tasks, by name; held-out tasks are left out of them."""
        return {}

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models the stage uses; those with a source ``role:NAME`` are copied when it begins."""
        return frozenset()

    def written(self, what: Given) -> bool:
        """Whether models write these texts when the stage begins, so that its tasks need not have them before."""
        return self.selection is not None and what in self.selection.writes

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The signals that its parts need, each with the role whose model gives it; `models` are settings by role.

        Checked before anything is sampled.
        """
        return ()

    @property
    def makes(self) -> frozenset[str]:
        """Roles whose models the stage computes from other models (``source: made``)."""
        return frozenset()

    @property
    def learns_from(self) -> frozenset[Given]:
        """The given texts of tasks whose likelihood under the policy it changes on purpose."""
        return frozenset()

    def given(self, policy: "Policy", task: Task) -> Sequence[Trajectory]:
        """Those texts of a task as trajectories; of a pair the chosen completion, then the rejected one."""
        return ()

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for tasks that training would fail on later.

        Called with the recipe's initial models, before anything is sampled or recorded.
        """

    def check_further(self, name: str, models: Models, tasks: Sequence[Task]) -> None:
        """The same for tasks of `further`, by their name."""

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """What the user should be aware of with these tasks: notes of the run, when the stage begins."""
        return ()

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps that the stage will take on these tasks."""
        raise NotImplementedError

    def run(self, models: Models, context: StageContext) -> Models:
        """Train, and return the models by role for the next stage."""
        raise NotImplementedError

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Draw one batch without learning from it, and describe in a few lines what training would see."""
        raise NotImplementedError
