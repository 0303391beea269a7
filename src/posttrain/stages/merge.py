"""Merge: make the model of one role out of the models of others, without training.

A reference that is itself made (SALSA, arXiv:2411.01798) is a role whose source is ``made``, and a stage like this one
before the stage that needs it. The weights are ready when the stage begins to be left: its one step records how far the
new model is from each that it was made of.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.merges import Merge
from posttrain.errors import UserError
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import fit
from posttrain.types import Task


@frozen
class Merging(Stage):
    """One model of several."""

    role: str
    """The model that is made: one with ``source: made``, or a trained one, whose weights are replaced."""
    of: Annotated[tuple[str, ...], Field(min_length=1)]
    """Roles of the models that it is made of, in the order of the method's weights; of one, it is a copy as of now."""
    method: Merge
    tasks: None = None
    """A merge looks at no tasks."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that it reads."""
        return frozenset(self.of)

    @property
    def makes(self) -> frozenset[str]:
        """The role that it writes."""
        return frozenset({self.role})

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """The method must be able to merge this many models, none of them twice."""
        self.method.check(len(self.of))
        twice = sorted({role for role in self.of if self.of.count(role) > 1})
        if twice:
            raise UserError(f"the merge stage names the role '{twice[0]}' twice; weigh it instead: method.weights")

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """One."""
        return 1

    def run(self, models: Models, context: StageContext) -> Models:
        """Merge, and return the models with the new one among them."""
        from posttrain.policies.merging import merge

        if context.steps_done:
            return models
        merged = merge(
            self.role, context.model_settings[self.role], {role: models[role] for role in self.of}, self.method
        )
        made = {**models, self.role: merged.policy}
        for step in fit(context, made, {}, steps=1):
            step.record.metrics |= {f"distance/{role}": far for role, far in merged.distances.items()}
        return made

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """What is made of what."""
        return [f"{self.role} is made of {', '.join(self.of)} by {self.method.kind}"]
