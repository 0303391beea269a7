r"""Comparisons of two short replies by a principle, of which one satisfies it: what teaches a model to compare.

The replies are those of `reviewed_replies`: polite ("please") or not, and short or not. The principle is "polite" or
"short", and exactly one of the two replies satisfies it.

    prompt "Reply (qhb):\na: see kim\nb: please see ann\npolite?"   demonstration " b"
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.templates import Template, fill
from posttrain.types import Task

TEMPLATE = "{question}\na: {first}\nb: {second}\n{principle}?"
PRINCIPLES = ("polite", "short")
NAMES = ("kim", "ann", "bob", "eve", "sam")


@frozen
class PrincipleItems(Tasks):
    """Pairs of replies to be compared by one principle."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    template: Template = TEMPLATE
    """Prompt. Placeholders: question, first, second, principle."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"principle_items:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"comparisons of replies (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, int, bool, bool, bool, str, str]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        flags = [rng.random() < 0.5 for _ in range(3)]
        return name, rng.randrange(2), *flags, rng.choice(NAMES), rng.choice(NAMES)  # type: ignore[return-value]

    def _task(self, drawn: tuple[str, int, bool, bool, bool, str, str]) -> Task:
        name, principle, first_has, other_first, other_second, who, whom = drawn
        traits = [(first_has, other_first), (not first_has, other_second)]
        polite_short = [pair if principle == 0 else pair[::-1] for pair in traits]
        first, second = (reply(*pair, who=w) for pair, w in zip(polite_short, (who, whom), strict=True))
        values = {"question": f"Reply ({name}):", "first": first, "second": second, "principle": PRINCIPLES[principle]}
        letter = "a" if first_has else "b"
        return Task(
            key="",
            prompt=fill(self.template, values),
            answer=letter,
            domain=PRINCIPLES[principle],
            demonstrations=(f" {letter}",),
        )


def reply(polite: bool, short: bool, *, who: str) -> str:
    """A reply with these traits."""
    return f"{'please ' if polite else ''}see {who}{'' if short else ' or ask at the desk'}"
