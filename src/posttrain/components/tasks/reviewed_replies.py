r"""Short replies with feedback of three annotators on two principles, which are known by code.

A reply is polite ("please") or not, and short or not, independently. Each annotator writes about both principles, is
wrong about each with probability `noise`, and gives quotations, some of which are invented. The principle that a
prompt is bound to is drawn; the policy does not see it.

    prompt "Reply (qhb):"   demonstration "please see kim"   principle "short"
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

PRINCIPLES = ("polite", "short")
NAMES = ("kim", "ann", "bob", "eve", "sam")
INVENTED = 0.1
"""Share of quotations that are in no text."""


@frozen
class ReviewedReplies(Tasks):
    """Replies and what annotators say of them."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    noise: Annotated[float, Field(ge=0.0, le=0.5)] = 0.15
    """Chance that an annotator is wrong about a principle."""
    annotators: Annotated[int, Field(ge=1, le=10)] = 3
    """Annotators of each reply."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"reviewed_replies:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"replies with feedback (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> tuple[str, bool, bool, str, str]:
        name = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3))
        return name, rng.random() < 0.5, rng.random() < 0.5, rng.choice(NAMES), rng.choice(PRINCIPLES)

    def _task(self, drawn: tuple[str, bool, bool, str, str]) -> Task:
        name, polite, short, who, principle = drawn
        reply = f"{'please ' if polite else ''}see {who}{'' if short else ' or ask at the desk'}"
        rng = Random(f"reviewed_replies:{self.seed}:{drawn}:{self.noise}")
        feedback = [self._annotator({"polite": polite, "short": short}, rng) for _ in range(self.annotators)]
        return Task(
            key="",
            prompt=f"Reply ({name}):",
            domain=principle,
            demonstrations=(f" {reply}",),
            fields={"principle": principle, "polite": polite, "short": short, "feedback": feedback},
        )

    def _annotator(self, true: dict[str, bool], rng: Random) -> dict[str, Any]:
        held = {name: holds != (rng.random() < self.noise) for name, holds in true.items()}
        quotes = {name: f"it is {'' if holds else 'not '}{name}" for name, holds in held.items()}
        principles = [
            {
                "principle": name,
                "label": "yes" if holds else "no",
                "evidence": "zzz qqq xxx" if rng.random() < INVENTED else quotes[name],
            }
            for name, holds in held.items()
        ]
        principles.append({"principle": "helpfulness", "label": "yes", "evidence": quotes["polite"]})
        return {"text": ", and ".join(quotes.values()) + ".", "principles": principles}
