"""What a recipe is made of. A stage starts from the models that the one before it left.

Contract: a stage asks `run.resume_state` for the state that it last gave to `run.checkpoint`, and continues from it
bit for bit; everything that it draws is a function of (seed, stage name, step).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.component import Component
from posttrain.tasks import Tasks

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.runs.run import Run

Models = Mapping[str, "Policy"]


class Stage(Component):
    """One phase of training."""

    tasks: Tasks | None
    """The stage's own problems; when left out, those of the recipe."""

    def run(self, models: Models, run: "Run") -> Models:
        """Train, and return the models by role for the next stage."""
        raise NotImplementedError
