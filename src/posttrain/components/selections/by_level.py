"""Chooses tasks by how many of k answers of the model are right: a mixture of difficulties, fixed before training.

Source: AlphaMed, arXiv:2505.17952: each question is answered k times by the model that is then trained, and gets a
level from 1 (k of k right) to k + 1 (none). Subsets of single levels and mixtures are trained on, with labels frozen.
Of k = 5 only notes were read; the levels are six there.

As many tasks of each chosen level are taken, at random by the seed; what a level lacks of its share is taken from the
others. Tasks keep their own order; with ``sort=true`` they stand by level, the easiest first, for the curriculum
``in_order``. With p the share of right answers, a task gives a group of n answers a non-zero advantage with probability
1 - p^n - (1 - p)^n, which the summary has for the chosen tasks and for all. Where options are guessed, p is not 0.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import sample_all
from posttrain.engines import Sampler, Sampling
from posttrain.types import Task


@frozen
class ByLevel(Selection):
    """Keeps tasks of some levels of difficulty, equally many of each."""

    reward: Reward
    """Scores the answers; status ``ok`` is right."""
    k: Annotated[int, Field(ge=1, le=64)] = 5
    """Answers to each task."""
    levels: tuple[PositiveInt, ...] = ()
    """Levels that are kept, 1 (all right) to k + 1 (none right); none are all."""
    count: PositiveInt = 300
    """Largest number of tasks that are kept; as many of each level, as long as there are."""
    temperature: PositiveFloat = 1.0
    """Of the answers."""
    max_tokens: PositiveInt = 64
    """Longest answer."""
    seed: NonNegativeInt = 0
    """Which tasks of a level are taken."""
    sort: bool = False
    """Whether the tasks stand by level, the easiest first."""

    @property
    def orders(self) -> bool:
        """The setting `sort`."""
        return self.sort

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the number of right answers; None where an answer could not be scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks, samplers, self.reward, role="policy", n=self.k, sampling=sampling, kind=self.kind
        )
        failed = [any(t.score is None or t.score.status == "error" for t in group) for group in groups]
        return [None if bad else sum(t.solved for t in group) for group, bad in zip(groups, failed, strict=True)]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks of the levels, in their own order or by level."""
        places: dict[int, list[int]] = {level: [] for level in range(1, self.k + 2)}
        for place, right in enumerate(measured):
            if right is not None:
                places[level_of(right, self.k)].append(place)
        counts = {level: len(own) for level, own in places.items()}
        wanted = [level for level in self.levels or places if places.get(level)]
        rng = Random(f"by_level:{self.seed}")
        for own in places.values():
            rng.shuffle(own)
        turns = [
            places[level][turn] for turn in range(max(counts.values())) for level in wanted if turn < counts[level]
        ]
        kept = sorted(turns[: self.count])
        if self.sort:
            kept.sort(key=lambda place: level_of(measured[place], self.k))
        shares = {name: _informative([measured[i] / self.k for i in own], 8) for name, own in _both(kept, measured)}
        listed = ", ".join(f"level {level}: {number}" for level, number in counts.items())
        return Chosen(
            tasks=[tasks[place] for place in kept],
            summary=(
                f"{len(kept)} of {len(tasks)} tasks of levels {', '.join(map(str, wanted)) or 'none'} ({listed}); a "
                f"group of 8 has a non-zero advantage with probability {shares['kept']:.2f}, {shares['all']:.2f} of all"
            ),
        )


def level_of(right: int, k: int) -> int:
    """The level of a task by its number of correct answers of k: 1 for all, k + 1 for none."""
    return k - right + 1


def _both(kept: Sequence[int], measured: Any) -> list[tuple[str, list[int]]]:
    return [("kept", list(kept)), ("all", [i for i, right in enumerate(measured) if right is not None])]


def _informative(shares: Sequence[float], n: int) -> float:
    """Mean of 1 - p^n - (1 - p)^n over tasks; 0 without any."""
    return sum(1 - p**n - (1 - p) ** n for p in shares) / len(shares) if shares else 0.0
