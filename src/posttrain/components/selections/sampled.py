"""Trains on the models' own checked rollouts: pairs of a right and a wrong one, or the best of several.

The rollouts are sampled once, when the stage begins, and scored by a verifier; what is made of them is described in
`posttrain.datasets.checked`. They take the place of the texts that the data has. A task whose rollouts give none, such
as one that is always solved or never, is left out. Where the texts are from is in the field ``origin`` of the task.

Source: Tulu 3, arXiv:2411.15124, and Qwen2.5, arXiv:2412.15115 (pairs); Kimi k1.5, arXiv:2501.12599 (shortest);
RedOne 2.0, arXiv:2511.07070 (best of 8).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.datasets.checked import checked_of, make
from posttrain.engines import Sampler, Sampling
from posttrain.types import Preference, Task


@frozen
class Sampled(Selection):
    """Replaces the texts of tasks by what models wrote."""

    reward: Reward
    """Scores the rollouts; status ``ok`` is right."""
    use: Literal["pairs", "shortest", "best_of", "solved", "modes"] = "pairs"
    """What they are made into; see above."""
    n: Annotated[int, Field(ge=1, le=256)] = 4
    """Rollouts at a task by each writer."""
    writers: Annotated[tuple[str, ...], Field(min_length=1)] = ("policy",)
    """Roles whose models write them: the policy as the stage finds it, a reference from an earlier stage, ..."""
    temperatures: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)] = (1.0,)
    """Temperature of each writer; one is for all."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""
    most: PositiveInt = 1
    """Most pairs or texts of one task."""
    first: PositiveInt | None = None
    """Number of tasks that are sampled, from the first; the others are left out. None takes all."""

    @model_validator(mode="after")
    def check_temperatures(self) -> Self:
        """Refuse another number of temperatures than of writers."""
        if len(self.temperatures) not in (1, len(self.writers)):
            context = {"got": len(self.temperatures), "writers": len(self.writers)}
            text = "temperatures has {got} numbers for {writers} writers; give one for all, or one for each"
            raise PydanticCustomError("temperatures", text, context)
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The writers, and those of the reward."""
        return frozenset(self.writers) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations for the best of several, solved ones and modes, else preferences."""
        return frozenset({"demonstrations" if self.use in ("best_of", "solved", "modes") else "preferences"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task what its rollouts are made into, and how many of them are right; None for the others."""
        chosen = tasks[: self.first]
        temperatures = self.temperatures * (len(self.writers) if len(self.temperatures) == 1 else 1)
        rows = []
        for writer, temperature in zip(self.writers, temperatures, strict=True):
            sampling = Sampling(max_tokens=self.max_tokens, temperature=temperature)
            rows.append(
                await sample_all(
                    chosen, samplers, self.reward, role=writer, n=self.n, sampling=sampling, kind=self.kind
                )
            )
        measured: list[Any] = []
        for groups in zip(*rows, strict=True):
            own = [
                rollout
                for place, (writer, group) in enumerate(zip(self.writers, groups, strict=True))
                for rollout in checked_of(fitting(group, samplers[writer]), writer, first=place * self.n)
            ]
            made = make(own, self.use, most=self.most)
            solved = sum(t.solved for group in groups for t in group)
            measured.append({"right": solved, "made": None if made is None else asdict(made)})
        return measured + [None] * (len(tasks) - len(chosen))

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with what was made of their rollouts, in their order."""
        chosen = [
            _with(task, row["made"])
            for task, row in zip(tasks, measured, strict=True)
            if row is not None and row["made"] is not None
        ]
        rows = [row for row in measured if row is not None]
        total = len(self.writers) * self.n
        right = sum(row["right"] for row in rows)
        none, every = (sum(row["right"] == count for row in rows) for count in (0, total))
        return Chosen(
            tasks=chosen,
            summary=(
                f"{len(chosen)} of {len(rows)} tasks give {self.use} from {total} rollouts each by "
                f"{', '.join(self.writers)}: {right} of {total * len(rows)} rollouts are right; {every} tasks are "
                f"solved by all, {none} by none"
            ),
        )


def _with(task: Task, made: Mapping[str, Any]) -> Task:
    """A task with new texts in place of its own."""
    pairs = tuple(Preference(**pair) for pair in made["preferences"])
    fields = {**task.fields, "origin": list(made["origin"])}
    if pairs:
        return replace(task, preferences=pairs, fields=fields)
    return replace(task, demonstrations=tuple(made["demonstrations"]), fields=fields)
