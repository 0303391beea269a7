"""Merge: computes the model of one role from the models of others, without training.

A reference that is a merge of models (SALSA, arXiv:2411.01798) is a role whose source is ``made``, and a merge stage
before the stage that needs it. The one step of the stage records the distance of the merged model from each of its
sources.
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
    """Merging of several models into one."""

    role: str
    """The merged model: one with ``source: made``, or a trained one, whose weights are replaced."""
    of: Annotated[tuple[str, ...], Field(min_length=1)]
    """Roles of the models that are merged, in the order of the method's weights. One role gives a copy."""
    method: Merge
    tasks: None = None
    """A merge uses no tasks."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that it reads."""
        return frozenset(self.of)

    @property
    def makes(self) -> frozenset[str]:
        """The role that it writes."""
        return frozenset({self.role})

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """The method must support this number of models, and no model may be there twice."""
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
        """The roles and the method of the merge."""
        return [f"{self.role} is merged from {', '.join(self.of)} by {self.method.kind}"]
