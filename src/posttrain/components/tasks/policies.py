"""Triples of letter policies, without labels: a reference and two candidates, of which one is by the same policy.

Source: the pre-training of POLAR, arXiv:2507.05197: of one prompt, the reference and the chosen candidate are samples
of one policy, the rejected one is a sample of another. Here a policy is a distribution over eight letters, drawn once
from a Dirichlet distribution. Nothing is better by itself: every policy is the right one as often as the others.

    prompt "kq:"   reference "hhahhbhh"   chosen "hahhhahh"   rejected "cdccgcdc"
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Preference, Task

LETTERS = "abcdefgh"


@frozen
class Policies(Tasks):
    """Triples of samples of policies."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of triples."""
    seed: NonNegativeInt = 0
    """Which samples are drawn; the policies are the same for all seeds."""
    policies: Annotated[int, Field(ge=2, le=1000)] = 6
    """Policies that write."""
    first: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of the first policy, for triples of policies that others have not seen."""
    length: Annotated[int, Field(ge=1, le=1000)] = 16
    """Letters of an answer."""
    concentration: Annotated[float, Field(gt=0.0, le=1000.0)] = 0.5
    """Of the Dirichlet distribution: less has policies of fewer letters."""

    def load(self) -> Sequence[Task]:
        """The triples, in the order in which they are drawn."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"triples of {self.policies} letter policies (seed {self.seed})", self.load())

    def weights(self, policy: int) -> list[float]:
        """Chances of the letters under a policy."""
        rng = Random(f"policies:{self.first + policy}:{self.concentration}")
        drawn = [rng.gammavariate(self.concentration, 1.0) + 1e-9 for _ in LETTERS]
        return [one / sum(drawn) for one in drawn]

    def _task(self, number: int) -> Task:
        rng = Random(f"policies:{self.seed}:{number}")
        own, other = rng.sample(range(self.policies), 2)
        prompt = "".join(rng.choice("klmnopqrstuvwxyz") for _ in range(4)) + ":"
        reference, chosen = (self._text(own, rng) for _ in range(2))
        rejected = self._text(other, rng)
        return Task(
            key="",
            prompt=f"{prompt}{number}:",
            answer=reference,
            domain=f"policy {self.first + own}",
            preferences=(Preference(chosen=chosen, rejected=rejected),) if chosen != rejected else (),
            fields={"reference": reference, "other": self.first + other},
        )

    def _text(self, policy: int, rng: Random) -> str:
        return "".join(rng.choices(LETTERS, self.weights(policy), k=self.length))
