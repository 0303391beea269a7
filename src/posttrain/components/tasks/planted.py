r"""Planted subsequences: write letters in which three given ones appear in order, as early as possible.

Source: the didactic task of Setlur et al. 2025, arXiv:2502.12118. The prompt is ``Plant cab in 20.\nA:``. The
demonstrations are traces of procedural policies, which write the next letter of the subsequence with probability gamma
and another one otherwise; gamma is drawn once per trace, and decides how much the rewards of traces differ.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.planted import reward_of
from posttrain.errors import UserError
from posttrain.types import Task

Gamma = Annotated[float, Field(gt=0.0, lt=1.0)]
TRIES = 1000
"""Traces that are drawn for a successful one."""


@frozen
class Planted(Tasks):
    """Tasks with traces; a subsequence is repeated once all are drawn."""

    size: PositiveInt = 400
    """Number of tasks, each with one trace."""
    seed: NonNegativeInt = 0
    """Which tasks and traces are drawn."""
    letters: Annotated[int, Field(ge=2, le=26)] = 8
    """Letters of the alphabet, from a on."""
    length: Annotated[int, Field(ge=1, le=8)] = 3
    """Letters of the subsequence, all different; at most those of the alphabet."""
    horizon: Annotated[int, Field(ge=1, le=200)] = 20
    """Letters of a trace."""
    gammas: Annotated[tuple[Gamma, ...], Field(min_length=1, max_length=8)] = (0.1, 0.3, 0.9)
    """Policies that write the traces, equally likely; a single one is a homogeneous base."""
    traces: Literal["all", "successful"] = "all"
    """Whether traces without the subsequence are demonstrations too."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        words = distinct(self._draw, self.size, f"planted:{self.seed}")
        return keyed(self._task(word, Random(f"planted:{self.seed}:{i}")) for i, word in enumerate(words))

    def describe(self) -> str:
        """Number and an example."""
        what = f"{self.length} of {self.letters} letters in {self.horizon}, gammas {self.gammas}, {self.traces} traces"
        return describe(f"planted subsequences ({what}; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> str:
        alphabet = [chr(ord("a") + i) for i in range(self.letters)]
        return "".join(rng.sample(alphabet, min(self.length, self.letters)))

    def _task(self, word: str, rng: Random) -> Task:
        trace = self._trace(word, rng)
        for _ in range(TRIES):
            if self.traces == "all" or reward_of(word, self.horizon, trace):
                break
            trace = self._trace(word, rng)
        else:
            raise UserError(
                f"no trace of {TRIES} with gammas {list(self.gammas)} has '{word}' within {self.horizon} letters; "
                "raise the horizon or gammas, or take traces=all"
            )
        return Task(
            key="",
            prompt=f"Plant {word} in {self.horizon}.\nA:",
            demonstrations=(f" {trace}",),
            fields={"planted": word, "horizon": self.horizon},
        )

    def _trace(self, word: str, rng: Random) -> str:
        """A trace: a policy is drawn, then its letters."""
        gamma, left, letters = rng.choice(self.gammas), list(word), []
        for _ in range(self.horizon):
            wanted = left[0] if left else None
            others = [chr(ord("a") + i) for i in range(self.letters) if chr(ord("a") + i) != wanted]
            letter = wanted if wanted is not None and rng.random() < gamma else rng.choice(others)
            if letter == wanted:
                left.pop(0)
            letters.append(letter)
        return "".join(letters)
