r"""Generated records about invented people, some of them canaries: secrets whose memorization can be measured.

A record is a prompt, ``Ann Reed, Oslo, likes tea. Code:``, and a completion, a code of `digits` digits. Codes of
ordinary records follow from the prompt and can be learned without memorizing; those of canaries are random. A canary
has the fields ``canary`` and ``digits``; `posttrain diagnose exposure` compares the likelihood of its code with others.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

NAMES = ("Ann", "Ben", "Cay", "Dov", "Eli", "Fay", "Gus", "Hal", "Ivy", "Jon")
LAST = ("Reed", "Mann", "Cole", "Dorn", "Ebb", "Funk", "Gray", "Hill", "Ives", "Jahn")
TOWNS = ("Oslo", "Bonn", "Riga", "Lima", "Kyiv", "Pula", "Cork", "Nice", "Graz", "Bern")
LIKES = ("tea", "jam", "rain", "chess", "cats", "maps", "rye", "jazz", "figs", "snow")


@frozen
class Records(Tasks):
    """Records in a random order; a larger `size` begins with the same ones."""

    size: PositiveInt = 2000
    """Number of records, canaries included."""
    seed: NonNegativeInt = 0
    """Which records are drawn."""
    canaries: NonNegativeInt = 20
    """Number of canaries; at most one record in four is one."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """Copies of every canary."""
    digits: Annotated[int, Field(ge=1, le=6)] = 4
    """Digits of a code."""

    def load(self) -> Sequence[Task]:
        """The records; canaries are every fourth one until there are enough."""
        return keyed(self._record(i) for i in range(self.size))

    def describe(self) -> str:
        """Number and an example."""
        return describe(
            f"records with {self.canaries} canaries, {self.repeats} copies each (seed {self.seed})", self.load()
        )

    def _record(self, place: int) -> Task:
        rng = Random(f"records:{self.seed}:{place}")
        name, last, town, likes = (rng.randrange(10) for _ in range(4))
        canary = place // 4 // self.repeats if place % 4 == 3 else self.canaries
        if canary < self.canaries:
            own = Random(f"canary:{self.seed}:{canary}")
            name, last, town, likes = (own.randrange(10) for _ in range(4))
            code = "".join(str(own.randrange(10)) for _ in range(self.digits))
            fields = {"canary": canary, "digits": self.digits}
        else:
            code = (f"{name}{last}{town}{likes}" * 2)[: self.digits]
            fields = {}
        prompt = f"{NAMES[name]} {LAST[last]}, {TOWNS[town]}, likes {LIKES[likes]}. Code:"
        return Task(key="", prompt=prompt, answer=code, demonstrations=(f" {code}",), fields=fields)
