"""A phase of a curriculum by length: tasks of a band of prompt lengths, and shorter ones that were never solved.

Source: QwenLong-L1, Wan et al. 2025, arXiv:2505.17667, sections 3.1 and 3.2. Phase k trains on the tasks whose prompts
have more than L(k-1) and at most L(k) tokens. Of earlier phases the difficult ones return, difficulty being
1 / (mean reward of a group of the base model). What was run is the limit of that formula: phase II keeps exactly the
earlier tasks whose rollouts all failed.

The base model answers the shorter tasks `n` times when the stage begins; it is the model in the role `role`.

Differs: a task none of whose rollouts could be scored does not return. A returned task gives no advantage until it is
solved once; the number of those that return is in the summary, and the filter of equal rewards counts them in the run.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import sample_all
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Task


@frozen
class ByLength(Selection):
    """Keeps tasks of a band of lengths, and earlier ones of accuracy 0."""

    reward: Reward
    """Scores the answers of the base model; status ``ok`` is correct."""
    longest: PositiveInt | None = None
    """L(k): most tokens of a prompt; None has no upper limit."""
    above: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """L(k-1): tokens above which a prompt is in this phase."""
    again: bool = True
    """Whether shorter tasks that the base model never solves return."""
    role: str = "base"
    """Role of the base model."""
    n: Annotated[int, Field(ge=1, le=256)] = 8
    """Rollouts of each shorter task."""
    temperature: NonNegativeFloat = 0.7
    """Of the rollouts."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""

    @model_validator(mode="after")
    def check_band(self) -> Self:
        """Refuse a band without a length."""
        if self.longest is not None and self.longest <= self.above:
            context = {"above": self.above, "longest": self.longest}
            raise PydanticCustomError("band", "no prompt has more than {above} and at most {longest} tokens", context)
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The base model, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its length in tokens; of a shorter one also its share of correct rollouts, where known."""
        reader = sampler_of(self.role, samplers, f"the {self.kind} selection samples from")
        lengths = [len(reader.prompt(task)) for task in tasks]
        earlier = [i for i, length in enumerate(lengths) if length <= self.above and self.again]
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            [tasks[i] for i in earlier],
            samplers,
            self.reward,
            role=self.role,
            n=self.n,
            sampling=sampling,
            kind=self.kind,
        )
        solved: dict[int, float] = {}
        for i, group in zip(earlier, groups, strict=True):
            known = [t.solved for t in group if t.score is not None and t.score.status != "error"]
            if known:
                solved[i] = sum(known) / len(known)
        return [{"length": length, "solved": solved.get(i)} for i, length in enumerate(lengths)]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks of the band and those that return, in their own order."""
        own, back = set[int](), set[int]()
        for place, row in enumerate(measured):
            if row["length"] > self.above and (self.longest is None or row["length"] <= self.longest):
                own.add(place)
            elif self.again and row["length"] <= self.above and row["solved"] == 0.0:
                back.add(place)
        upper = "" if self.longest is None else f" and at most {self.longest}"
        shorter = sum(row["length"] <= self.above for row in measured)
        return Chosen(
            tasks=[task for place, task in enumerate(tasks) if place in own | back],
            summary=(
                f"{len(own)} of {len(tasks)} tasks have a prompt of more than {self.above}{upper} tokens; "
                f"{len(back)} of {shorter} shorter ones return, none of whose {self.n} rollouts was correct"
            ),
        )
