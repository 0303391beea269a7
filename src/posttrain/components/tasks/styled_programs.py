r"""Generated Bash programs with a preference: the same program in several forms, some better by one preference.

``Bash: a*3+b\n`` is an instruction, and its field ``preference`` one of five: task i has preference i modulo 5. The
field ``principles`` has two texts, under which a writer answers: one leads to a program that is better by the
preference, one to a program that is not as good. With `shown`, this share of the prompts begins with a principle, and
the demonstration has its form; others have a drawn form of those that are right. The plain form is
``read a b; echo $((a*3+b))``.

    instruction     "All of it."  plain                        "In short."  without the last term: wrong
    explanation     "Explain."    two comments                 "A note."    one comment
    complexity      "Few steps."  plain                        "With care." a loop that does nothing
    readability     "Names."      read left right              "Clear."     read le ri
    style           "Spaces."     spaces around all operators  "Neat."      around the first one

Tests and expressions are those of `programs`.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Final, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.coding_preferences import RUBRICS
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task


class Form(NamedTuple):
    """How a program is written."""

    comments: int = 0
    names: tuple[str, str] = ("a", "b")
    spaced: int = 0
    """Operators with spaces, from the first."""
    loop: bool = False
    dropped: bool = False
    """Whether the last term is left out."""


FORMS: Final[Mapping[str, Mapping[str, Form]]] = {
    "instruction": {"All of it.": Form(), "In short.": Form(dropped=True)},
    "explanation": {"Explain.": Form(comments=2), "A note.": Form(comments=1)},
    "complexity": {"Few steps.": Form(), "With care.": Form(loop=True)},
    "readability": {"Names.": Form(names=("left", "right")), "Clear.": Form(names=("le", "ri"))},
    "style": {"Spaces.": Form(spaced=9), "Neat.": Form(spaced=1)},
}
"""By preference and principle."""
RIGHT: Final = tuple(form for forms in FORMS.values() for form in forms.values() if not form.dropped)
"""Those that print the value."""
Terms = tuple[str, ...]


@frozen
class StyledPrograms(Tasks):
    """Instructions with a preference and its principles; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=5000)] = 200
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    shown: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the prompts that begin with a principle."""
    tests: Annotated[PositiveInt, Field(le=16)] = 2
    """Number of test inputs of each task."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        drawn = distinct(_draw, self.size, f"styled programs:{self.seed}")
        return keyed(self._task(i, terms) for i, terms in enumerate(drawn))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"programs by five preferences (seed {self.seed})", self.load())

    def _task(self, number: int, terms: Terms) -> Task:
        rng = Random(f"styled programs task:{self.seed}:{number}")
        preference = tuple(RUBRICS)[number % len(RUBRICS)]
        expression = "".join(terms)
        principles = list(FORMS[preference])
        principle = rng.choice(principles) if rng.random() < self.shown else ""
        form = FORMS[preference][principle] if principle else rng.choice(RIGHT)
        prompt = f"Bash: {expression}\n"
        inputs = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in range(self.tests)]
        return Task(
            key="",
            prompt=f"{principle}\n{prompt}" if principle else prompt,
            domain=preference,
            demonstrations=(written(terms, form),),
            fields={
                "preference": preference,
                "principles": principles,
                "language": "bash",
                "tests": [{"input": f"{a} {b}\n", "output": f"{value(terms, a, b)}\n"} for a, b in inputs],
            },
        )


def _draw(rng: Random) -> Terms:
    """Three terms with two operators between them, as a tuple of five texts."""
    terms = [rng.choice(("a", "b", str(rng.randint(2, 9)))) for _ in range(3)]
    terms[rng.randrange(3)] = rng.choice("ab")
    return terms[0], rng.choice("+-*"), terms[1], rng.choice("+-*"), terms[2]


def written(terms: Terms, form: Form) -> str:
    """The program in a form."""
    own = dict(zip("ab", form.names, strict=True))
    kept = terms[:-2] if form.dropped else terms
    parts, operators = [own.get(term, term) for term in kept[::2]], kept[1::2]
    computed = parts[0]
    for place, (operator, part) in enumerate(zip(operators, parts[1:], strict=True)):
        computed += f" {operator} {part}" if place < form.spaced else f"{operator}{part}"
    lines = [f"read {' '.join(form.names)}", f"echo $(({computed}))"]
    lines = ["for i in 1 2; do :; done", *lines] if form.loop else lines
    if form.comments == 0:
        return "; ".join(lines)
    return "# sum\n" + "; ".join(lines) if form.comments == 1 else f"# read\n{lines[0]}\n# sum\n{lines[1]}"


def value(terms: Terms, a: int, b: int) -> int:
    """What the expression is, products first."""
    numbers = [{"a": a, "b": b}[term] if term in "ab" else int(term) for term in terms[::2]]
    first, second = terms[1], terms[3]
    if second == "*" and first != "*":
        return _applied(first, numbers[0], numbers[1] * numbers[2])
    return _applied(second, _applied(first, numbers[0], numbers[1]), numbers[2])


def _applied(operator: str, x: int, y: int) -> int:
    return x * y if operator == "*" else x + y if operator == "+" else x - y
