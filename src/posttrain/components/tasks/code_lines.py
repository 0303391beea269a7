r"""Lines of code, cut at a random place and to be completed.

    total = total + pr    ->    ice

A line is one of ten templates with names in it, of which most occur twice, so that a completion can mostly be found
from what is before the cut; from `level` 2 on it is as many of them, joined by ``;``. The prompt is the line up to the
cut, which is between 3 characters and 2 before the end; the answer and the demonstration are the rest. The field
``line`` has all of it. With `corrupted`, a share of the demonstrations goes on like another line from a random place
on.

With `tasks`, whose prompts or fields ``source`` are code of one's own (as those of a folder of Python files), lines of
that are cut: the prompt is all that is before the cut, and lines of one source stay on one side of the held-out split
(``variant_of``).

    posttrain run ircoco 'tasks={kind: code_lines, tasks: src}'
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Any, Final, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.errors import UserError
from posttrain.types import Task

NAMES: Final = (
    "price",
    "total",
    "count",
    "names",
    "items",
    "width",
    "height",
    "score",
    "left",
    "right",
    "text",
    "best",
)
TEMPLATES: Final = (
    "{a} = {a} + {b}",
    "{a} = max({a}, {b})",
    "if {a} > {b}: {a} = {b}",
    "return {a} - {b} * {a}",
    "print({a}, len({a}))",
    "for {a} in {b}: {b}.pop()",
    "assert {a} != {b}, {a}",
    "{a}, {b} = {b}, {a}",
    "{a} = sorted(set({a}))",
    "while {a}: {a} -= {b}",
)
PLAIN: Final = tuple(own for own in TEMPLATES if not own.startswith(("if", "for", "while")))
"""Those that can stand after another statement."""
SHORTEST: Final = 6
"""Characters of a line that is cut, without what it is indented by."""
_LINE = re.compile(rf"(?m)^[ \t]*([^\s#].{{{SHORTEST - 2},}}[^\s])[ \t]*$")
Drawn = tuple[str, int]
"""A line, and where it is cut."""


@frozen
class CodeLines(Tasks):
    """Lines to complete; a larger `size` begins with the same ones."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 500
    """Number of lines with a cut."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    corrupted: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of demonstrations with a wrong ending."""
    level: Annotated[int, Field(ge=1, le=5)] = 1
    """Difficulty: the statements of a line. Of one statement all cuts are distinct, but not all prompts are."""
    tasks: Tasks | None = None
    """Whose code is cut; None for lines of templates."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level for code of one's own."""
        if self.level > 1 and self.tasks is not None:
            raise PydanticCustomError("level", "lines of one's own code have no level; leave it out")
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn; at most as many as there are cuts."""
        if self.tasks is not None:
            return keyed(self._own(self.tasks))
        return keyed(map(self._task, distinct(self._draw, self.size, self._stream)))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"cut lines of code (seed {self.seed})", self.load())

    @property
    def _stream(self) -> str:
        return f"code lines:{self.seed}" if self.level == 1 else f"code lines:{self.level}:{self.seed}"

    def _draw(self, rng: Random) -> Drawn:
        line = "; ".join([_line(rng), *(_line(rng, PLAIN) for _ in range(self.level - 1))])
        return line, rng.randint(3, len(line) - 2)

    def _own(self, given: Tasks) -> Iterator[Task]:
        """Cut lines of code of one's own. Raises `UserError` where no line is long enough."""
        places = []
        for task in given.load():
            source = task.fields.get("source", task.prompt)
            found = _LINE.finditer(source) if isinstance(source, str) else ()
            places += [(task.key, source, match.start(1), match.end(1)) for match in found]
        if not places:
            raise UserError(f"no line of the code has {SHORTEST} characters or more; give sources with longer ones")

        def draw(rng: Random) -> tuple[int, int]:
            own = rng.randrange(len(places))
            _, _, start, end = places[own]
            return own, rng.randint(start + 3, end - 2)

        cuts = sum(end - start - 4 for _, _, start, end in places)
        for own, cut in distinct(draw, min(self.size, cuts), f"code lines:{self.seed}"):
            key, source, start, end = places[own]
            fields = {"line": source[start:end], "variant_of": key}
            yield self._cut(source[:cut], source[cut:end], f"{source[start:end]}:{cut - start}", fields)

    def _task(self, drawn: Drawn) -> Task:
        line, cut = drawn
        return self._cut(line[:cut], line[cut:], f"{line}:{cut}", {"line": line})

    def _cut(self, prompt: str, rest: str, name: str, fields: Mapping[str, Any]) -> Task:
        shown = rest
        rng = Random(f"code lines task:{self.seed}:{name}")
        if rng.random() < self.corrupted:
            place = rng.randrange(len(rest))
            shown = rest[:place] + _line(rng)[-max(3, len(rest) - place) :]
        return Task(key="", prompt=prompt, answer=rest, demonstrations=(shown,), fields=fields)


def _line(rng: Random, templates: Sequence[str] = TEMPLATES) -> str:
    first, second = rng.sample(NAMES, 2)
    return rng.choice(templates).format(a=first, b=second)
