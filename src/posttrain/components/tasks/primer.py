"""Generated exercises: the pretraining data of the bundled model.

Short exercises in a few plain forms: sums, problems with and without worked solutions, copying, reversing, sorting,
counting, comparing, and the same as questions in a chat. All are made by a seeded generator.
"""

import random
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.types import Message, Task

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Exercise = tuple[str, str]
"""A prompt and the completion that follows it."""

WORDS = (  # noqa: SIM905
    "apple ball bird blue boat book bread bridge brown cat chair cloud cold cup dark day deer dog door dust ear "
    "earth egg eye farm fast field fire fish flag flower foot fox frog garden gold grass green hand hat hill "
    "home horse house ice iron island jam key king lake lamp leaf light lion milk moon mouse night north nose "
    "ocean owl paper path pear pen pig pink plane plum pond queen rabbit rain red ring river road rock roof root "
    "rope rose sail salt sand school sea seed ship shoe silver sky sleep small snow song south spoon star stone "
    "storm sugar summer sun swan table tail tea tent time tower train tree valley wall warm water west wheel "
    "white wind window winter wolf wood yellow zebra"
).split()


@frozen
class Primer(Tasks):
    """Numbered exercises: exercise i depends on (seed, i) only."""

    RENAMED: ClassVar = {"working": "worked"}

    size: PositiveInt = 10000
    """Number of exercises."""
    seed: NonNegativeInt = 0
    """Which exercises are drawn."""
    problems: Share = 0.5
    """Share of the exercises that are problems of several numbers (``Q: 47+35-8``); the rest have a single step."""
    worked: Share = 0.4
    """Share of the problems that are solved one step at a time; the others are answered at once."""

    def load(self) -> Sequence[Task]:
        """Every exercise, with its completion as the demonstration."""
        return [self._task(i) for i in range(self.size)]

    def describe(self) -> str:
        """Count and forms."""
        return f"{self.size} generated exercises: problems, {', '.join(sorted({name for name, _ in EXERCISES}))}"

    def _task(self, index: int) -> Task:
        rng = random.Random(f"primer:{self.seed}:{index}")
        if rng.random() < self.problems:
            name, (prompt, completion) = "problem", problem(rng, written=rng.random() < self.worked)
        else:
            name, exercise = rng.choice(EXERCISES)
            prompt, completion = exercise(rng)
        shown: str | tuple[Message, ...] = prompt
        if name != "sum" and rng.random() < 0.25:
            shown, completion = (Message(role="user", content=prompt.strip()),), completion.strip()
        return Task(
            key=f"primer-{self.seed}-{index}", prompt=shown, answer=None, domain=name, demonstrations=(completion,)
        )


def number(rng: random.Random, digits: int) -> int:
    """A whole number of up to `digits` digits, every length equally likely."""
    return rng.randrange(10 ** rng.randint(1, digits))


def plain_sum(rng: random.Random) -> Exercise:
    """A sum or difference without steps; results are never negative."""
    a, b = number(rng, 3), number(rng, 2)
    if rng.random() < 0.5:
        return f"{a}+{b}=", str(a + b)
    a, b = max(a, b), min(a, b)
    return f"{a}-{b}=", str(a - b)


def problem(rng: random.Random, *, written: bool) -> Exercise:
    """A sum of two to four numbers, answered by a worked solution where `written`, else by the result alone."""
    total = number(rng, 2)
    expression, steps = str(total), []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        term, sign = number(rng, 2), rng.choice("+-")
        result = total - term if sign == "-" else total + term
        expression += f"{sign}{term}"
        steps.append(f"{total}{sign}{term}={result}")
        total = result
    return f"Q: {expression}\nA:", f" {'; '.join(steps)}\n#### {total}" if written else f" #### {total}"


def product(rng: random.Random) -> Exercise:
    """A product of the small table."""
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    return f"{a}*{b}=", str(a * b)


def repeat(rng: random.Random) -> Exercise:
    """Copy words."""
    text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
    return f"Repeat: {text}\n", text


def reverse(rng: random.Random) -> Exercise:
    """Words in the opposite order."""
    words = rng.choices(WORDS, k=rng.randint(2, 4))
    return f"Reverse: {' '.join(words)}\n", " ".join(reversed(words))


def sort(rng: random.Random) -> Exercise:
    """Small numbers in rising order."""
    numbers = [number(rng, 2) for _ in range(rng.randint(2, 5))]
    return f"Sort: {' '.join(map(str, numbers))}\n", " ".join(map(str, sorted(numbers)))


def count(rng: random.Random) -> Exercise:
    """Number of words."""
    words = rng.choices(WORDS, k=rng.randint(1, 6))
    return f"How many words: {' '.join(words)}?\n", str(len(words))


def compare(rng: random.Random) -> Exercise:
    """The larger of two numbers."""
    a, b = number(rng, 3), number(rng, 3)
    return f"Which is larger, {a} or {b}?\n", str(max(a, b))


def spell(rng: random.Random) -> Exercise:
    """The letters of a word."""
    word = rng.choice(WORDS)
    return f"Spell: {word}\n", " ".join(word)


EXERCISES: tuple[tuple[str, Callable[[random.Random], Exercise]], ...] = (
    ("sum", plain_sum),
    ("sum", plain_sum),
    ("product", product),
    ("repeat", repeat),
    ("reverse", reverse),
    ("sort", sort),
    ("count", count),
    ("compare", compare),
    ("spell", spell),
)
