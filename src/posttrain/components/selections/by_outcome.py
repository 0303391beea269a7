"""Incorrectly and correctly answered tasks in a fixed ratio, by the model's newest answers to all tasks.

Source: the second stage of Fleming-R1, arXiv:2509.15279, section 3.3: the newest model answers the whole data set, and
what it gets wrong and what it gets right make the next training set, 2 to 1. Correctly answered tasks are not retired:
they are a third of the set, so that what is solved is not unlearned. Its first stage has 1 to 1.

A task counts as wrong where fewer than half of its `n` rollouts are correct. Where one side is too small, all of it is
taken and the other side shrinks, so that the ratio holds; without a single correct one all tasks are taken, and
without a single wrong one none is, since nothing is left to learn. A pass holds for the whole stage.

Differs: the release has no code for this. An item that a strong model always misses goes to a manual review of its
label in the paper; here a task none of whose rollouts could be scored is left out, and counted.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import sample_all, share_correct
from posttrain.engines import Sampler, Sampling
from posttrain.types import Task


@frozen
class ByOutcome(Selection):
    """Keeps wrong and right tasks in a ratio."""

    reward: Reward
    """Scores the answers; status ``ok`` is right."""
    wrong: PositiveInt = 2
    """Parts of tasks that were answered incorrectly."""
    right: NonNegativeInt = 1
    """Parts of tasks that were answered correctly; 0 takes none."""
    n: Annotated[int, Field(ge=1, le=256)] = 1
    """Answers to each task."""
    temperature: NonNegativeFloat = 1.0
    """Of the answers."""
    max_tokens: PositiveInt = 64
    """Longest answer."""
    seed: NonNegativeInt = 0
    """Which tasks of a side that is too large are taken."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the share of correct answers; None where none could be scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks, samplers, self.reward, role="policy", n=self.n, sampling=sampling, kind=self.kind
        )
        return [share_correct(group) for group in groups]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks of both sides, in their own order."""
        sides: dict[bool, list[int]] = {False: [], True: []}
        for place, share in enumerate(measured):
            if share is not None:
                sides[share >= 0.5].append(place)
        wrong, right = self._counts(len(sides[False]), len(sides[True]))
        rng = Random(f"by_outcome:{self.seed}")
        kept = sorted(rng.sample(sides[False], wrong) + rng.sample(sides[True], right))
        failed = sum(share is None for share in measured)
        return Chosen(
            tasks=[tasks[place] for place in kept],
            summary=(
                f"{wrong} of {len(sides[False])} tasks that are answered incorrectly, and {right} of "
                f"{len(sides[True])} that are answered correctly"
                + (f"; {failed} could not be scored and are left out" if failed else "")
            ),
        )

    def _counts(self, wrong: int, right: int) -> tuple[int, int]:
        """How many of each side are taken."""
        if not wrong or not self.right or not right:
            return wrong, 0
        if wrong * self.right <= right * self.wrong:
            return wrong, wrong * self.right // self.wrong
        return right * self.wrong // self.right, right
