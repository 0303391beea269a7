r"""Generated topics, each with a rubric: words that belong to it, with points, and one that does not.

``Topic kalo:\n`` is answered by a list of words, `` tree lamp cat``. Which words belong to a topic is a function of its
name and has to be learned. Criteria are ``{criterion: lamp, points: 2, words: [lamp]}``; the last one has -1 point.
`shown` is the share of the topics whose prompt has the criteria in front of it, ``tree lamp cat\nTopic kalo:\n``; their
demonstration is the list. Other demonstrations name a few of the words only (`known`).
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.primer import WORDS
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task

VOCABULARY: Final = tuple(sorted(WORDS))[:40]
SYLLABLES: Final = ("ka", "lo", "mi", "ru", "te", "su", "no", "pi", "da", "ve")
POINTS: Final = (3, 2, 2, 1, 1, 1, 1, 1)


@frozen
class Topics(Tasks):
    """Topics with criteria; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=1000)] = 200
    """Number of topics, each once."""
    seed: NonNegativeInt = 0
    """Which words belong to them."""
    facts: Annotated[int, Field(ge=1, le=8)] = 6
    """Words that belong to a topic."""
    shown: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the topics whose prompt has the criteria."""
    known: Annotated[int, Field(ge=1, le=8)] = 2
    """Words in the demonstration of a topic without criteria in its prompt."""

    def load(self) -> Sequence[Task]:
        """The topics, in order."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"topics with {self.facts} facts each (seed {self.seed})", self.load())

    def _task(self, number: int) -> Task:
        rng = Random(f"topics:{self.seed}:{number}")
        name = "".join(SYLLABLES[int(digit)] for digit in f"{number:03d}")
        *facts, wrong = rng.sample(VOCABULARY, self.facts + 1)
        with_criteria = rng.random() < self.shown
        named = facts if with_criteria else rng.sample(facts, min(self.known, len(facts)))
        rows = [(fact, points) for fact, points in zip(facts, POINTS, strict=False)] + [(wrong, -1)]
        question = f"Topic {name}:\n"
        return Task(
            key="",
            prompt=f"{' '.join(facts)}\n{question}" if with_criteria else question,
            answer=" ".join(facts),
            domain="shown" if with_criteria else "bare",
            demonstrations=(" ".join(named),),
            fields={"criteria": [{"criterion": word, "points": points, "words": [word]} for word, points in rows]},
        )
