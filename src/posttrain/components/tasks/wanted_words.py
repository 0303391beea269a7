r"""Generated lists of words, of which two are wanted: ``List 417:\n`` is answered by `` bee fox owl.``.

The wanted words are always the same two, which no prompt names: what is helpful has to be learned from labels. A
demonstration has up to twelve words, each number with equal probability, and each word is wanted with probability
`share`. Lists are labelled from 0 to 4: ``helpfulness`` by the share of wanted words, 0 without words; ``verbosity`` by
the number of words, 4 at twelve. With `labels` a task has one of the two in turns, as where each source of labels has
its own.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.wanted_words import LONGEST, WANTED, WORDS, labels_of, written
from posttrain.types import Task


@frozen
class WantedWords(Tasks):
    """Prompts for lists of words; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=100_000)] = 200
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Probability that a word of a demonstration is wanted."""
    labels: bool = False
    """Whether tasks have a label of their demonstration: the first helpfulness, the second verbosity, and so on."""

    def load(self) -> Sequence[Task]:
        """The tasks, in order."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"lists of wanted words (seed {self.seed})", self.load())

    def _task(self, number: int) -> Task:
        rng = Random(f"wanted words:{self.seed}:{number}")
        others = [word for word in WORDS if word not in WANTED]
        words = [rng.choice(WANTED if rng.random() < self.share else others) for _ in range(rng.randint(0, LONGEST))]
        text = written(words)
        name = ("helpfulness", "verbosity")[number % 2]
        labels = {name: labels_of(text, WANTED)[name]} if self.labels else {}
        return Task(
            key="",
            prompt=f"List {rng.randrange(1000)}:\n",
            demonstrations=(text,),
            fields={"wanted": list(WANTED), **labels},
        )
