r"""Queries with documents that are scored one at a time, by how many attributes they share.

A query has three letters, and so has a document, each the value of an attribute. Relevant are documents that share all
three; a query has `relevant` of them among `documents`. Of the others half share two (what a search by words
finds as well), the rest one or none. The prompt of a document is ``bdf bdc:``; a demonstration compares, then states a
score from 0 to 10: `` bb dd fc\n#### 7``. The scores to imitate are coarse, 1, 3, 7 and 7 for no to three shared
attributes, with `noise` one more or one less: relevant documents have no other ones than those that look alike.

``each: query`` has a task for each query, with the fields ``prompts`` (one for each document) and ``relevant`` (true or
false), for the rollout `pointwise`; ``each: document`` has one for each document, to imitate, with the fields
``query``, which the documents of a query share, and ``relevant``. Queries of different seeds differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Level, Ordered, check_level, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

LETTERS = "abcdefgh"
Count = Annotated[int, Field(ge=1, le=4)]
COARSE = (1, 3, 7, 7)
"""Scores to imitate, by the number of shared attributes."""


@dataclass(frozen=True)
class Drawn:
    """The query, its documents, and the scores to imitate; those that differ in the scores alone are equal."""

    query: str
    texts: tuple[str, ...]
    scores: tuple[int, ...] = field(compare=False)


LEVELS: Final = {1: 5, 2: 7, 3: 10, 4: 14, 5: 20}
"""By level: documents of a query."""


@frozen
class ScoredDocuments(Tasks):
    """Queries and documents of three letters."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of queries."""
    seed: NonNegativeInt = 0
    """Which queries are drawn."""
    each: Literal["query", "document"] = "query"
    """What a task is."""
    documents: Annotated[int, Field(ge=5, le=20)] = 6
    """Documents of a query."""
    level: Level = None
    """Difficulty, which sets `documents`; None leaves that as it is."""
    relevant: Annotated[tuple[Count, Count], Ordered] = (2, 4)
    """Fewest and most relevant documents of a query. Where they are few, most rollouts gain by lower scores, and a
    model that does not distinguish documents yet gives all of them a 0."""
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Probability with which a score to imitate is one more or one less."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `documents`."""
        check_level(self.level, "documents", changed=self.documents != 6)
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which queries are drawn."""
        if self.level is not None:
            return replace(self, level=None, documents=LEVELS[self.level]).load()
        stream = f"scored_documents:{self.documents}:{self.relevant[0]}:{self.relevant[1]}:{self.noise}:{self.seed}"
        drawn = distinct(self._draw, self.size, stream)
        return keyed(map(_query, drawn) if self.each == "query" else (task for one in drawn for task in _single(one)))

    def describe(self) -> str:
        """Number and an example."""
        if self.level is not None:
            return replace(self, level=None, documents=LEVELS[self.level]).describe()
        return describe(f"queries with {self.documents} documents (seed {self.seed}), a task each", self.load())

    def _draw(self, rng: Random) -> Drawn:
        """The query, its documents, and the scores to imitate."""
        query = "".join(rng.choice(LETTERS) for _ in range(3))
        count = rng.randint(*self.relevant)
        shared = [3] * count + [2] * ((self.documents - count + 1) // 2)
        shared += [rng.randint(0, 1) for _ in range(self.documents - len(shared))]
        rng.shuffle(shared)
        texts = tuple(_document(rng, query, number) for number in shared)
        scores = []
        for number in shared:
            moved = rng.choice((-1, 1)) if rng.random() < self.noise else 0
            scores.append(COARSE[number] + moved)
        return Drawn(query, texts, tuple(scores))


def _document(rng: Random, query: str, shared: int) -> str:
    """Three letters that share some with the query, in their places."""
    kept = set(rng.sample(range(3), shared))
    return "".join(own if i in kept else rng.choice(LETTERS.replace(own, "")) for i, own in enumerate(query))


def _query(drawn: Drawn) -> Task:
    query, texts = drawn.query, drawn.texts
    return Task(
        key="",
        prompt=_shown(drawn),
        domain=f"{texts.count(query)} relevant",
        fields={"prompts": [f"{query} {text}:" for text in texts], "relevant": [text == query for text in texts]},
    )


def _single(drawn: Drawn) -> Iterator[Task]:
    query, texts, scores = drawn.query, drawn.texts, drawn.scores
    for text, score in zip(texts, scores, strict=True):
        compared = " ".join(first + second for first, second in zip(query, text, strict=True))
        yield Task(
            key="",
            prompt=f"{query} {text}:",
            answer=str(score),
            demonstrations=(f" {compared}\n#### {score}",),
            fields={"query": _shown(drawn), "relevant": text == query},
        )


def _shown(drawn: Drawn) -> str:
    return f"{drawn.query}: {' '.join(drawn.texts)}"
