"""Generated documents and queries for generative retrieval: the answer is the identifier of a document.

A document is a list of words, most of them of its topic. Its identifier is a product-quantized vector of its words, one
token a part: ``<0-3><1-7><2-0><3-5>``. Documents of the same identifier cannot be distinguished, and are retrieved
together. `form` is what stands before it:

    document     all words of a document
    pseudo       some words of it, drawn at random, as a model would write a query for it
    query        some words of it, and one of another topic

A query's field ``ranked`` has the identifiers of all documents, each once, by BM25 of its words, the best first.
Documents are a function of their number and the seed `corpus`; `seed` draws queries.

Source: the three stages of imitation of DDRO, arXiv:2504.05181; its identifiers have 24 parts of 256 clusters.
"""

from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.keyword_ranking import Ranking
from posttrain.statistics.quantization import product_codes
from posttrain.types import Task

SYLLABLES: Final = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu")
WORDS: Final = tuple(f"{a}{b}" for a in SYLLABLES for b in SYLLABLES)
TOPICS: Final = 10
WIDTH: Final = 16
"""Numbers in the vector of a document."""
PARTS: Final = 4
CLUSTERS: Final = 8
CODES: Final = tuple(f"<{part}-{cluster}>" for part in range(PARTS) for cluster in range(CLUSTERS))
"""All texts that identifiers are made of."""


@frozen
class Retrieval(Tasks):
    """Texts with the identifier of a document as the answer."""

    size: Annotated[PositiveInt, Field(le=20_000)] = 200
    """Number of tasks; document i modulo their number is that of task i."""
    seed: NonNegativeInt = 0
    """Which queries are drawn."""
    form: Literal["document", "pseudo", "query"] = "query"
    """What stands before the identifier."""
    documents: Annotated[int, Field(ge=2, le=1000)] = 64
    """Number of documents."""
    corpus: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Which documents."""
    length: Annotated[int, Field(ge=4, le=64)] = 10
    """Words of a document."""
    asked: Annotated[int, Field(ge=1, le=16)] = 3
    """Words of a query that are of its document."""

    def load(self) -> Sequence[Task]:
        """The tasks, in order."""
        return keyed(map(self._task, range(self.size)))

    def describe(self) -> str:
        """Numbers and an example."""
        distinct = len(set(self._identifiers))
        return describe(f"{self.form} to identifier ({self.documents} documents, {distinct} identifiers)", self.load())

    @cached_property
    def _texts(self) -> list[list[str]]:
        """The words of every document."""
        own = len(WORDS) // TOPICS
        texts = []
        for number in range(self.documents):
            rng = Random(f"retrieval:{self.corpus}:{number}")
            topic = WORDS[number % TOPICS * own : (number % TOPICS + 1) * own]
            texts.append([rng.choice(topic if rng.random() < 0.6 else WORDS) for _ in range(self.length)])
        return texts

    @cached_property
    def _identifiers(self) -> list[str]:
        """The identifier of every document."""
        vector_WD = np.random.default_rng([self.corpus, 0x5265]).standard_normal((len(WORDS), WIDTH))
        place = {word: i for i, word in enumerate(WORDS)}
        vector_ND = np.array([vector_WD[[place[word] for word in words]].mean(0) for words in self._texts])
        codes = product_codes(vector_ND, PARTS, CLUSTERS, self.corpus)
        return ["".join(f"<{part}-{code}>" for part, code in enumerate(row)) for row in codes.tolist()]

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self._texts)

    def _task(self, index: int) -> Task:
        number = index % self.documents
        rng = Random(f"retrieval {self.form}:{self.seed}:{index}")
        words = self._texts[number]
        fields = {}
        if self.form != "document":
            words = rng.sample(words, min(self.asked, len(words)))
        if self.form == "query":
            words = [*words, rng.choice(WORDS)]
            rng.shuffle(words)
            ranked = [self._identifiers[i] for i in self._ranking.ranked(words)]
            fields = {"ranked": list(dict.fromkeys(ranked))}
        return Task(
            key="",
            prompt=f"{self.form[0].upper()} {' '.join(words)}:",
            answer=self._identifiers[number],
            demonstrations=(self._identifiers[number],),
            fields=fields,
        )
