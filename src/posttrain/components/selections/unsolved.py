"""Leaves out tasks that the policy solves in every rollout when the stage begins.

Source: AceReason-Nemotron 1.1, arXiv:2506.13284: prompts that the last checkpoint solves are dropped before a further
stage, where they would only make groups of equal rewards.

Differs: there, prompts are dropped again in each epoch of the stages for programs; here once, when a stage begins. A
task none of whose rollouts could be scored stays.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import sample_all, share_correct
from posttrain.engines import Sampler, Sampling
from posttrain.types import Task


@frozen
class Unsolved(Selection):
    """Keeps tasks by the share of correct rollouts."""

    reward: Reward
    """Scores the rollouts; status ``ok`` is right."""
    below: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of correct rollouts below which a task is kept."""
    n: Annotated[int, Field(ge=1, le=256)] = 4
    """Rollouts of each task."""
    temperature: PositiveFloat = 1.0
    """Of the rollouts."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the share of correct rollouts; None where none could be scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks, samplers, self.reward, role="policy", n=self.n, sampling=sampling, kind=self.kind
        )
        return [share_correct(group) for group in groups]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks below the bound, in their order."""
        kept = [t for t, share in zip(tasks, measured, strict=True) if share is None or share < self.below]
        return Chosen(
            tasks=kept,
            summary=(
                f"{len(kept)} of {len(tasks)} tasks are kept, those of which less than {self.below:.0%} of {self.n} "
                "rollouts are right"
            ),
        )
