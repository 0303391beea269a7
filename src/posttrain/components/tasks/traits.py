r"""Answers with countable traits, compared by simulated annotators: gold preferences whose weights are known.

An answer to "What is 14 + 40, Ada? (7)" has a sum, right or wrong, and may have the name, a polite word, a question,
the word "therefore" and fillers (`posttrain.datasets.traits`). Its quality is the sum of `weights` times its traits.
All pairs of the answers of a task are compared by each annotator; without annotators the better one is preferred. The
strength of a gold pair is the difference in quality; `margins` keeps those pairs whose difference lies in a range: hard
ones have a small one. The best answer is the demonstration.

    posttrain diagnose annotators tasks='{kind: traits, size: 60, annotators: [noise, noise, [reversal, noise]]}'
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.datasets.annotating import Compared, preferences
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered
from posttrain.datasets.keys import keyed
from posttrain.datasets.traits import KEYWORD, WEIGHTS, quality, traits
from posttrain.types import Preference, Task

Trait = Literal["right", "polite", "length", "name", "question", "keyword"]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Margin = Annotated[float, Field(ge=0.0, le=1e9)]
NAMES = ("Ada", "Ben", "Cleo", "Dan")
FILLERS = ("indeed", "plainly", "here", "again", "overall", "briefly", "simply", "directly")
GREETINGS = ("Well", "So", "Now", "Then", "Right", "Sure", "Fine", "Good")
"""Each answer of a task has another one, so that no two are equal."""


@frozen
class Traits(Tasks):
    """Questions with answers of known quality, and preferences between them."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which answers are drawn, and what annotators draw."""
    answers: Annotated[int, Field(ge=2, le=8)] = 3
    """Answers of a task."""
    weights: Annotated[Mapping[Trait, Weight], Field(min_length=1, default_factory=lambda: dict(WEIGHTS))]
    """By trait, what one of it adds to the quality."""
    margins: Annotated[tuple[Margin, Margin], Ordered] = (0.0, 1e9)
    """Smallest and largest difference in quality of a pair."""
    annotators: Annotators = ()
    """Who compares the answers; none gives gold preferences."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"answers with countable traits (seed {self.seed})", self.load())

    def _task(self, number: int) -> Task:
        rng = Random(f"traits:{self.seed}:{number}")
        name, a, b = rng.choice(NAMES), rng.randint(2, 59), rng.randint(2, 59)
        greetings = rng.sample(GREETINGS, self.answers)
        texts = [_answer(greeting, name, a, b, rng) for greeting in greetings]
        weights: Mapping[str, float] = {str(trait): weight for trait, weight in self.weights.items()}
        counted = [traits(text, name) for text in texts]
        values = [quality(one, weights) for one in counted]
        found: list[Preference] = []
        for i, j in combinations(range(self.answers), 2):
            if not self.margins[0] <= abs(values[i] - values[j]) <= self.margins[1]:
                continue
            both = {trait: (counted[i][trait], counted[j][trait]) for trait in counted[i]}
            writers = (_writer(texts[i]), _writer(texts[j]))
            compared = Compared(
                texts=(texts[i], texts[j]), gap=values[i] - values[j], traits=both, writers=writers, number=number
            )
            found += preferences(compared, self.annotators, f"traits:{self.seed}:{number}:{i}:{j}")
        fields: dict[str, Any] = {"name": name, "texts": texts, "qualities": values}
        best = texts[max(range(self.answers), key=values.__getitem__)]
        return Task(
            key="",
            prompt=f"What is {a} + {b}, {name}? ({number})",
            answer=str(a + b),
            demonstrations=(best,),
            preferences=tuple(found),
            fields=fields,
        )


def _answer(greeting: str, name: str, a: int, b: int, rng: Random) -> str:
    right, polite, named, question, word, own = (rng.random() < 0.5 for _ in range(6))
    total = a + b if right else a + b + rng.randint(1, 8)
    words = ([KEYWORD] if word else []) + rng.sample(FILLERS, rng.randint(0, 7))
    text = f"{greeting}{', please note' if polite else ''} {a} + {b} = {total}{f', {name}' if named else ''}"
    return text + "".join(f" {filler}" for filler in words) + (". Clear?" if question else ".") + (" ~" if own else "")


def _writer(text: str) -> str:
    """Who wrote an answer: the style of one ends with a tilde."""
    return "own" if text.endswith("~") else "other"
