"""Stages: the phases of a recipe. Each starts from the models that the one before it left.

Contract: a stage continues from `steps_done`, `memory` and `restore` of its context, bit for bit as if it had never
stopped; everything that it draws is a function of (seed, step); it ends every step with `finish_step`. A stage that
trains gets all of this from `posttrain.stages.fit`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from posttrain.component import Component
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.models import Model
from posttrain.stages.context import Models, PreviewContext, StageContext
from posttrain.stages.needs import Need
from posttrain.types import Task

__all__ = ["Models", "PreviewContext", "Stage", "StageContext"]

SHARED: Final = ("columns", "context", "fit", "loss", "needs", "order", "pairs", "prompts", "record")
"""Modules of this folder that are no stages: what several of them use."""


class Stage(Component):
    """One phase of training."""

    tasks: Tasks | None
    """The stage's own problems; when left out, those of the recipe."""
    selection: Selection | None = None
    """Which of them are trained on, in stages that have such a field; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that the stage needs as copies of others (``role:NAME``) when it begins."""
        return frozenset()

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The signals that its parts need and the roles that are asked for them, with these models by role.

        Checked before anything is sampled.
        """
        return ()

    @property
    def makes(self) -> frozenset[str]:
        """Roles whose models the stage makes from nothing but other models (``source: made``)."""
        return frozenset()

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for anything in the tasks that training would stumble over later.

        Called with the recipe's first models, before anything is sampled or recorded.
        """

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps that the stage will take on these tasks."""
        raise NotImplementedError

    def run(self, models: Models, context: StageContext) -> Models:
        """Train, and return the models by role for the next stage."""
        raise NotImplementedError

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Draw one batch without learning from it, and say in a few lines what training would see."""
        raise NotImplementedError
