r"""Passages to be put in order for a query, with the relevant ones and the order of a noisy teacher.

``c?\n1 a4\n2 c7\n3 b1\n4 c2\n:`` A passage is a letter and a digit; those with the query's letter are relevant, the
others share the digits, so that a digit does not matter. The teacher puts the relevant ones first, in the order in
which they are listed, then exchanges neighbours with the probability `noise`. A demonstration names what is relevant,
then has the teacher's order: `` <think>2 4</think><answer>2>4>1>3</answer>``.

As in ReasonRank (arXiv:2508.07050) a teacher's order is kept if its NDCG@10 of the relevant passages, which are marked
separately, is above `keep`; otherwise another one is drawn.

A file of one's own needs the columns prompt, relevant and order (numbers from 1): `posttrain.components.rewards
.reranked` reads nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Final, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import DRAWS, Level, Ordered, check_level, distinct
from posttrain.datasets.keys import keyed
from posttrain.grading.ranked_lists import ndcg
from posttrain.types import Task

LETTERS = "abcdefgh"
Drawn = tuple[str, tuple[str, ...], tuple[int, ...]]


LEVELS: Final = {1: 6, 2: 8, 3: 11, 4: 15, 5: 20}
"""By level: passages of a query."""


@frozen
class Passages(Tasks):
    """Queries with numbered passages."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    passages: Annotated[int, Field(ge=4, le=20)] = 6
    """Passages of a query."""
    level: Level = None
    """Difficulty, which sets `passages`; None leaves that as it is."""
    relevant: Annotated[tuple[Annotated[int, Field(ge=1, le=4)], Annotated[int, Field(ge=1, le=4)]], Ordered] = (1, 3)
    """Fewest and most relevant passages of a query."""
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Probability with which the teacher exchanges two neighbours, once from the top to the bottom."""
    keep: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.4
    """A teacher's order must have a larger NDCG@10."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `passages`."""
        check_level(self.level, "passages", changed=self.passages != 6)
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        if self.level is not None:
            return replace(self, level=None, passages=LEVELS[self.level]).load()
        bounds = ":".join(map(str, (self.passages, *self.relevant, self.noise, self.keep)))
        return keyed(map(self._task, distinct(self._draw, self.size, f"passages:{bounds}:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        if self.level is not None:
            return replace(self, level=None, passages=LEVELS[self.level]).describe()
        return describe(f"{self.passages} passages to rank for a query (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        """The query, the passages and the teacher's order."""
        query, count = rng.choice(LETTERS), rng.randint(*self.relevant)
        marked = sorted(rng.sample(range(1, self.passages + 1), count))
        others = LETTERS.replace(query, "")
        texts = tuple(
            f"{query if place in marked else rng.choice(others)}{rng.randrange(10)}"
            for place in range(1, self.passages + 1)
        )
        right = [*marked, *(place for place in range(1, self.passages + 1) if place not in marked)]
        for _ in range(DRAWS):
            order = list(right)
            for i in range(self.passages - 1):
                if rng.random() < self.noise:
                    order[i], order[i + 1] = order[i + 1], order[i]
            if ndcg(order, set(marked), 10) > self.keep:
                return query, texts, tuple(order)
        return query, texts, tuple(right)

    def _task(self, drawn: Drawn) -> Task:
        query, texts, order = drawn
        marked = [place for place, text in enumerate(texts, 1) if text[0] == query]
        listed = "\n".join(f"{place} {text}" for place, text in enumerate(texts, 1))
        ranked = ">".join(map(str, order))
        return Task(
            key="",
            prompt=f"{query}?\n{listed}\n:",
            answer=ranked,
            domain=f"{len(marked)} relevant",
            demonstrations=(f" <think>{' '.join(map(str, marked))}</think><answer>{ranked}</answer>",),
            fields={"query": query, "documents": list(texts), "relevant": marked, "order": list(order)},
        )
