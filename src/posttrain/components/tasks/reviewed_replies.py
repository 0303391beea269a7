r"""Short replies with feedback of annotators on two principles, which are known by code.

A reply is polite ("please") or not, and short or not, independently. Each of the `annotators` writes about both
principles, with a quotation of its own text as evidence; which of them are wrong, left out or invented depends on its
faults. The principle that a prompt is bound to is drawn; the policy does not see it.

    prompt "Reply (qhb):"   demonstration "please see kim"   principle "short"
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotator, Annotators, Shown
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

PRINCIPLES = ("polite", "short")
NAMES = ("kim", "ann", "bob", "eve", "sam")


@frozen
class ReviewedReplies(Tasks):
    """Replies and what annotators say of them."""

    RENAMED: ClassVar = {"noise": "annotators=[[{kind: noise, rate: ..., spread: 0}, feedback]]"}

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which replies are drawn."""
    annotators: Annotators = ()
    """Who writes feedback on each reply; without any there is none."""
    draws: str = "0.15"
    """Name of the annotators' draws: with another one they err elsewhere in the same replies."""

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
        rng = Random(f"reviewed_replies:{self.seed}:{drawn}:{self.draws}")
        true = {"polite": polite, "short": short}
        feedback = [_written(annotator, true, f" {reply}", rng) for annotator in self.annotators]
        return Task(
            key="",
            prompt=f"Reply ({name}):",
            domain=principle,
            demonstrations=(f" {reply}",),
            fields={"principle": principle, "polite": polite, "short": short, "feedback": feedback},
        )


def _written(annotator: Annotator, true: dict[str, bool], reply: str, rng: Random) -> dict[str, Any]:
    """The text of an annotator, and its principles with label and evidence."""
    shown = Shown(texts=(reply,))
    opinions = {name: annotator.opinion(1.0 if holds else -1.0, shown, rng) for name, holds in true.items()}
    held = {name: opinion > 0 for name, opinion in opinions.items() if opinion is not None}
    quotes = {name: f"it is {'' if holds else 'not '}{name}" for name, holds in held.items()}
    principles = [
        {"principle": name, "label": "yes" if holds else "no", "evidence": annotator.quotation(quotes[name], rng)}
        for name, holds in held.items()
    ]
    if quotes:
        principles.append({"principle": "helpfulness", "label": "yes", "evidence": next(iter(quotes.values()))})
    return {"text": ", and ".join(quotes.values()) + ".", "principles": principles}
