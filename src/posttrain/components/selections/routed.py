"""Routes tasks by whether a model answers them rightly: right ones with its own answers, or those it answers wrongly.

Two stages with the two settings of `keep`, the same role and greedy sampling divide the tasks between them: what the
role answers rightly is imitated in its own words, and the rest is left to reinforcement. The role must be a model that
stays the same: a copy of the policy (``source: role:policy``) with ``trained: true``, which is made once, when its
first stage begins, and writes no rollouts, so that nothing trains it. A frozen copy is made anew by every stage.

Source: UnifiedReward-Think, arXiv:2503.03318, and its release (rejection sampling, then GRPO on the wrong items): one
answer for each item. An answer without a verdict is a wrong one.

Differs: with several answers (`n`) a task is right if any of them is, of which the first is imitated. A task none of
whose answers could be scored is in neither part, and is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.engines import Sampler, Sampling
from posttrain.types import Task, Trajectory


@frozen
class Routed(Selection):
    """Keeps the tasks of one side."""

    reward: Reward
    """Scores the answers; status ``ok`` is right."""
    keep: Literal["right", "wrong"] = "right"
    """Which side is kept. Tasks of the right side have the answer as their only demonstration."""
    role: str = "router"
    """The model that answers."""
    n: Annotated[int, Field(ge=1, le=256)] = 1
    """Answers to each task."""
    temperature: NonNegativeFloat = 0.0
    """Of the answers; 0 is greedy, with which both sides divide the tasks exactly."""
    max_tokens: PositiveInt = 64
    """Longest answer."""

    @model_validator(mode="after")
    def check_answers(self) -> Self:
        """Refuse several greedy answers, which are all the same."""
        if self.n > 1 and not self.temperature:
            raise PydanticCustomError("n", "several answers need a temperature above 0")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The model that answers, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations, for the right side."""
        return frozenset({"demonstrations"} if self.keep == "right" else ())

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the text of its first right answer; empty where all are wrong, None where none was scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks, samplers, self.reward, role=self.role, n=self.n, sampling=sampling, kind=self.kind
        )
        return [_first_right(fitting(group, samplers[self.role])) for group in groups]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks of the side, in their order."""
        pairs = list(zip(tasks, measured, strict=True))
        right = [
            replace(task, demonstrations=(text,), fields={**task.fields, "origin": [{"writer": self.role}]})
            for task, text in pairs
            if text
        ]
        wrong = [task for task, text in pairs if text == ""]
        lost = len(tasks) - len(right) - len(wrong)
        return Chosen(
            tasks=right if self.keep == "right" else wrong,
            summary=(
                f"the role '{self.role}' answers {len(right)} of {len(tasks)} tasks rightly and {len(wrong)} wrongly, "
                f"{lost} could not be scored; the {self.keep} ones are kept"
            ),
        )


def _first_right(rollouts: Sequence[Trajectory | None]) -> str | None:
    """The text of the first right answer that fits into the context; see `Routed.measure`."""
    found = [t for t in rollouts if t is not None and t.score is not None and t.score.status != "error"]
    if not found:
        return None
    return next((t.completion for t in found if t.solved and t.completion), "")
