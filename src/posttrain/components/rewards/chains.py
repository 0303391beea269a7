"""Carries out a plan of typed tools on the inputs of the task: mean similarity of its results to the references.

Source: OpenAGI, arXiv:2304.04370: the metric of the executed plan, in [0, 1], is the reward; a plan that does not fit
is `invalid`. Every link of the chain is checked; the release checks its ends only. In evaluation an invalid plan
has 0: ``invalid=0``. The tools are those of `posttrain.datasets.tool_chains`, the columns ``inputs``, ``outputs`` and
``goal``, the kind of the result.

Differs: tools are of texts and numbers, and similarity is that of characters.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.tool_chains import alike, carried_out, fault, tools_of
from posttrain.errors import TaskFault
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Chains(Reward):
    """Scores the results of a plan."""

    invalid: Annotated[float, Field(ge=-10.0, le=0.0)] = -1.0
    """Reward of a plan that does not fit."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without inputs and outputs."""
        for task in tasks:
            given, wanted = task.fields.get("inputs"), task.fields.get("outputs")
            goal = task.fields.get("goal")
            lists = isinstance(given, list | tuple) and isinstance(wanted, list | tuple) and len(given) == len(wanted)
            if not lists or not given or goal not in ("text", "number"):
                raise TaskFault(
                    task.key,
                    f"task '{task.key}' cannot score a plan; give it columns 'inputs' and 'outputs' (lists of texts of "
                    "one length) and 'goal' (text or number)",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Carry out each plan."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        fields, names = trajectory.task.fields, tools_of(trajectory.completion)
        if not fields.get("inputs") or "goal" not in fields:
            return failure("the task has no inputs to carry a plan out on")
        why = fault(names, fields["goal"])
        if why:
            return Score(value=self.invalid, status="wrong", answer=trajectory.completion.strip(), explanation=why)
        results = [carried_out(names, str(given)) for given in fields["inputs"]]
        values = [alike(found, str(wanted)) for found, wanted in zip(results, fields["outputs"], strict=True)]
        value = sum(values) / len(values)
        return Score(
            value=value,
            status="ok" if value == 1.0 else "wrong",
            answer=trajectory.completion.strip(),
            explanation=f"gives {results[0]!r:.60}",
        )
