r"""Answers of segments whose rewards are known and add up, most of them early, alike, or late; compared by annotators.

An answer has `segments` words, each of one of six kinds. A kind has a reward in each place, drawn once from a normal
distribution whose standard deviation depends on the place: `SPREADS` for three segments, and along a line in between.
The reward of a prefix is the sum of those of its words, so what a model gives a prefix can be compared with it. Both
answers of a pair share their first `shared` words.

    prompt "kq: 17:"   chosen " ba di fu"   rejected " ba ce fu"

Source: the table of arXiv:2402.10184 (responses as paths of a prefix tree) and the prefixes of arXiv:2407.13887, whose
sequences are of this package.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import Compared, preferences
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

KINDS: Final = ("ba", "ce", "di", "fo", "gu", "hy")
SPREADS: Final[Mapping[str, tuple[float, float, float]]] = {
    "early": (1.4, 0.8, 0.4),
    "flat": (1.0, 1.0, 1.0),
    "late": (0.4, 0.8, 1.4),
}
"""Standard deviation of the rewards of the first, the middle and the last segment."""


@frozen
class Prefixes(Tasks):
    """Pairs of answers with a reward of each prefix."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which answers are drawn, and what annotators draw; the rewards of kinds are the same for all seeds."""
    segments: Annotated[int, Field(ge=1, le=64)] = 3
    """Words of an answer."""
    reward: Literal["early", "flat", "late"] = "flat"
    """Where the reward of an answer is decided."""
    shared: Annotated[int, Field(ge=0, le=63)] = 0
    """Words that both answers of a pair begin with; fewer than `segments`."""
    annotators: Annotators = ()
    """Who compares the answers; none prefers the larger reward always."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"answers of {self.segments} segments, rewards {self.reward} (seed {self.seed})", self.load())

    def rewards(self) -> list[list[float]]:
        """[segments][kinds] rewards of each kind in each place."""
        first, middle, last = SPREADS[self.reward]
        rng, found = Random(f"prefixes:{self.segments}"), []
        for place in range(self.segments):
            share = 2 * place / (self.segments - 1) if self.segments > 1 else 1.0
            std = first + (middle - first) * share if share < 1 else middle + (last - middle) * (share - 1)
            found.append([std * rng.gauss(0.0, 1.0) for _ in KINDS])
        return found

    def _task(self, number: int) -> Task:
        rng, rewards = Random(f"prefixes:{self.seed}:{number}"), self.rewards()
        one = [rng.randrange(len(KINDS)) for _ in range(self.segments)]
        other = list(one)
        while other == one:
            shared = min(self.shared, self.segments - 1)
            other[shared:] = [rng.randrange(len(KINDS)) for _ in range(self.segments - shared)]
        sums = [_sums(answer, rewards) for answer in (one, other)]
        texts = ("".join(f" {KINDS[kind]}" for kind in one), "".join(f" {KINDS[kind]}" for kind in other))
        compared = Compared(texts=texts, gap=sums[0][-1] - sums[1][-1], number=number)
        best = int(sums[1][-1] > sums[0][-1])
        letters = "".join(rng.choice("klmnopqrstuvwxyz") for _ in range(2))
        return Task(
            key="",
            prompt=f"{letters}: {number}:",
            demonstrations=(texts[best],),
            preferences=preferences(compared, self.annotators, f"prefixes:{self.seed}:{number}"),
            fields={"texts": list(texts), "prefix_rewards": sums},
        )


def _sums(answer: Sequence[int], rewards: Sequence[Sequence[float]]) -> list[float]:
    """The reward of each prefix."""
    found, total = [], 0.0
    for place, kind in enumerate(answer):
        total += rewards[place][kind]
        found.append(total)
    return found
