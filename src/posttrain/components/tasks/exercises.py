r"""Short exercises with words and numbers, each kind with one answer: ``Sort: 31 4 15\n`` is answered by ``4 15 31``.

    copy       Repeat: fox lamp\n                       fox lamp
    reverse    Reverse: fox lamp sea\n                  sea lamp fox
    sort       Sort: 31 4 15\n                          4 15 31
    count      How many words: fox lamp sea?\n          3
    compare    Which is larger, 31 or 4?\n              31
    spell      Spell: fox\n                             f o x

The forms are those that the bundled model was trained on, with up to four or six items; longer ones are harder for it.
The kind is the domain of a task.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.primer import WORDS
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

Name = Literal["copy", "reverse", "sort", "count", "compare", "spell"]
Items = Annotated[int, Field(ge=1, le=16)]


@frozen
class Exercises(Tasks):
    """Exercises of some kinds, in equal parts; a larger `size` begins with the same ones."""

    names: Annotated[tuple[Name, ...], Field(min_length=1)] = ("copy", "reverse", "sort", "count")
    """Which kinds; task i is of kind i modulo their number."""
    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    items: Annotated[tuple[Items, Items], Ordered] = (2, 5)
    """Fewest and most words or numbers in a task; of `spell` and `compare` there is one, or two."""
    demonstrate: bool = True
    """Whether tasks have their answer as a demonstration."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        count = len(self.names)
        own = [self._drawn(name, -(-self.size // count)) for name in self.names]
        return keyed(self._task(*own[i % count][i // count]) for i in range(self.size))

    def describe(self) -> str:
        """Kinds, number and an example."""
        few, many = self.items
        return describe(f"exercises ({', '.join(self.names)}; {few} to {many} items; seed {self.seed})", self.load())

    def _drawn(self, name: Name, count: int) -> list[tuple[str, str, str]]:
        """Kind, prompt and answer of `count` exercises of one kind."""

        def draw(rng: Random) -> tuple[str, str, str]:
            return (name, *DRAWN[name](rng, self.items))

        return distinct(draw, count, f"exercises:{name}:{self.items}:{self.seed}")

    def _task(self, name: str, prompt: str, answer: str) -> Task:
        return Task(
            key="",
            prompt=prompt,
            answer=answer,
            domain=name,
            demonstrations=(answer,) if self.demonstrate else (),
        )


def _words(rng: Random, items: tuple[int, int]) -> list[str]:
    return rng.choices(WORDS, k=rng.randint(*items))


def _number(rng: Random) -> int:
    """A number of one or two digits, both equally likely."""
    return rng.randrange(10 ** rng.randint(1, 2))


def _copy(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    text = " ".join(_words(rng, items))
    return f"Repeat: {text}\n", text


def _reverse(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    words = _words(rng, items)
    return f"Reverse: {' '.join(words)}\n", " ".join(reversed(words))


def _sort(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    numbers = [_number(rng) for _ in range(rng.randint(*items))]
    return f"Sort: {' '.join(map(str, numbers))}\n", " ".join(map(str, sorted(numbers)))


def _count(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    words = _words(rng, items)
    return f"How many words: {' '.join(words)}?\n", str(len(words))


def _compare(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    first, second = _number(rng), _number(rng)
    return f"Which is larger, {first} or {second}?\n", str(max(first, second))


def _spell(rng: Random, items: tuple[int, int]) -> tuple[str, str]:
    word = rng.choice(WORDS)
    return f"Spell: {word}\n", " ".join(word)


DRAWN: Final[Mapping[Name, Callable[[Random, tuple[int, int]], tuple[str, str]]]] = {
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "count": _count,
    "compare": _compare,
    "spell": _spell,
}
