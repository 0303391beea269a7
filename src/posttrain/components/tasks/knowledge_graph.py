r"""Generated questions about a random graph of facts: a chain of facts with one entity masked, and four options.

``Q: kalo-aids-? ?-owns-rimu\nA tepo B kalo C sune D rimu\nA:``. The graph has one fact for every entity and relation;
objects are drawn by popularity, which falls as 1 / rank (Zipf), so that some entities are rare. A question is a path of
one to three facts (hops), in which the masked entity is the only one that is missing and is decided by the facts shown.
Wrong options are look-alikes: they are objects of the relation before the masked entity somewhere in the graph, but
contradict a fact that is shown. The answer is a letter; a demonstration states the facts with the entity in place:
`` kalo-aids-tepo tepo-owns-rimu\n#### A``. The domain is the number of hops; the field ``rare`` has whether the entity
is among the rarer half.

Source: the graph of Fleming-R1, arXiv:2509.15279, section 3.1, whose entities are from Wikipedia. What the graph holds
is not in the prompt: it has to be learned.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

CONSONANTS, VOWELS = "bdfgklmnprst", "aeiou"
RELATIONS: Final = ("aids", "owns", "near", "made", "uses", "fits", "lost", "kept")
LETTERS: Final = "ABCD"
Hops = Annotated[int, Field(ge=1, le=4)]
Question = tuple[tuple[int, ...], tuple[int, ...], int]
"""Entities of a path, its relations, and the place of the masked entity."""


@frozen
class KnowledgeGraph(Tasks):
    """Questions with four options about facts of a graph."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of questions."""
    seed: NonNegativeInt = 0
    """Which questions are drawn."""
    graph: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Which graph they are about."""
    entities: Annotated[int, Field(ge=12, le=2000)] = 60
    """Number of entities."""
    relations: Annotated[int, Field(ge=2, le=8)] = 4
    """Number of relations."""
    hops: Annotated[tuple[Hops, Hops], Ordered] = (1, 3)
    """Fewest and most facts of a question, every number equally likely."""
    rarity: NonNegativeFloat = 0.5
    """Exponent by which entities with fewer facts begin a path more often; 0 draws all alike."""
    demonstrate: bool = True
    """Whether questions have the facts as a demonstration."""

    def load(self) -> Sequence[Task]:
        """The questions, in the order in which they are drawn."""
        label = f"knowledge_graph:{self.graph}:{self.entities}:{self.relations}:{self.hops}:{self.rarity}:{self.seed}"
        return keyed(map(self._task, distinct(self._draw, self.size, label)))

    def describe(self) -> str:
        """The graph, number and an example."""
        few, many = self.hops
        about = f"questions of {few} to {many} facts about {self.entities} entities with {self.relations} relations"
        return describe(f"{about} (graph {self.graph}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Question:
        """A path whose masked entity is decided by the facts shown, and has three look-alikes."""
        facts = _facts(self.graph, self.entities, self.relations)
        counts = _counts(self.graph, self.entities, self.relations)
        weights = [counts[entity] ** -self.rarity for entity in range(self.entities)]
        while True:
            hops = rng.randint(*self.hops)
            path, via = rng.choices(range(self.entities), weights), list[int]()
            for _ in range(hops):
                via.append(rng.randrange(self.relations))
                path.append(facts[path[-1]][via[-1]])
            masked = rng.randrange(1, hops + 1)
            question = (tuple(path), tuple(via), masked)
            if len(set(path)) == len(path) and len(self._alike(question)) >= 3:
                return question

    def _alike(self, question: Question) -> list[int]:
        """Other objects of the relation before the masked entity, not shown in the question."""
        facts = _facts(self.graph, self.entities, self.relations)
        path, via, masked = question
        return sorted({row[via[masked - 1]] for row in facts} - set(path))

    def _task(self, question: Question) -> Task:
        path, via, masked = question
        rng = Random(f"knowledge_graph:options:{self.graph}:{question}")
        options = [*rng.sample(self._alike(question), 3), path[masked]]
        rng.shuffle(options)
        names = [_name(entity) for entity in path]
        shown = ["?" if i == masked else name for i, name in enumerate(names)]
        letter = LETTERS[options.index(path[masked])]
        offered = " ".join(f"{mark} {_name(entity)}" for mark, entity in zip(LETTERS, options, strict=True))
        counts = _counts(self.graph, self.entities, self.relations)
        median = sorted(counts)[len(counts) // 2]
        return Task(
            key="",
            prompt=f"Q: {_chain(shown, via)}\n{offered}\nA:",
            answer=letter,
            domain=f"{len(via)} hops",
            demonstrations=(f" {_chain(names, via)}\n#### {letter}",) if self.demonstrate else (),
            fields={
                "options": [_name(entity) for entity in options],
                "hops": len(via),
                "facts": [[a, RELATIONS[r], b] for a, r, b in zip(names, via, names[1:], strict=False)],
                "masked": names[masked],
                "rare": counts[path[masked]] < median,
            },
        )


def _chain(names: Sequence[str], via: Sequence[int]) -> str:
    """The facts of a path as text."""
    return " ".join(f"{a}-{RELATIONS[r]}-{b}" for a, r, b in zip(names, via, names[1:], strict=False))


def _name(entity: int) -> str:
    """A word of four letters, different for each entity below 3,600."""
    first, second = divmod(entity * 37 % 3600, 60)
    return "".join(CONSONANTS[part % 12] + VOWELS[part // 12] for part in (first, second))


@cache
def _counts(graph: int, entities: int, relations: int) -> tuple[int, ...]:
    """[entities] number of facts that an entity is in."""
    found = [relations] * entities
    for row in _facts(graph, entities, relations):
        for entity in row:
            found[entity] += 1
    return tuple(found)


@cache
def _facts(graph: int, entities: int, relations: int) -> tuple[tuple[int, ...], ...]:
    """[entities, relations] the object of every entity and relation, drawn by popularity."""
    rng = Random(f"knowledge_graph:{graph}")
    order = rng.sample(range(entities), entities)
    weights = [1.0 / (order[entity] + 1) for entity in range(entities)]
    return tuple(tuple(rng.choices(range(entities), weights, k=relations)) for _ in range(entities))
