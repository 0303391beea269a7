r"""Countdown tasks, whose demonstrations run into a given number of dead ends before the solution.

Source: Cai et al. 2025, arXiv:2505.24273, and its released trace maker: a dead end leaves the solution at a step drawn
uniformly, and from there on every step is another one than the solution's, with another operator or another number.
Dead ends come in the order in which they leave the solution, each followed by a remark that goes back
(`posttrain.datasets.backtracks`), then the solution.

    posttrain run backtracking tasks.tasks=mine.jsonl tasks.dead_ends=2
    # rows of a file: numbers ([3, 5, 2]), target (25), answer (5*(3+2))

Differs: the dead ends of a trace are distinct (the release is given one and repeats it), use each number once, as its
wrong steps need not, and end at another number than the target. Remarks are shorter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.countdown import Countdown
from posttrain.datasets.backtracks import Path, trace
from posttrain.errors import UserError
from posttrain.grading.expressions import Operation, evaluate, numbers_used, operations
from posttrain.types import Task

TRIES = 200
"""Draws of a dead end before a task is refused, which has too few."""


@frozen
class Backtracked(Tasks):
    """Demonstrations of countdown tasks with dead ends."""

    tasks: Tasks = Countdown()
    """The source: tasks with the fields ``numbers`` and ``target``, and an expression as answer."""
    dead_ends: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of dead ends in a demonstration; the paper has 0 to 3."""
    content: Literal["right", "wrong", "shuffled"] = "right"
    """``wrong`` ends in one more dead end as the answer; ``shuffled`` has the trace of another task with as many
    numbers. Both have the same number of dead ends."""
    operators: Literal["+-*/", "+-", "+-*"] = "+-*/"
    """Operators of the dead ends."""
    seed: NonNegativeInt = 0
    """Seed of the dead ends."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for one that is not solved by its answer."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and what demonstrations have."""
        return f"{self.tasks.describe()}\nevery demonstration has {self.dead_ends} dead ends, content {self.content}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        tasks = self.tasks.load()
        puzzles = [_read(task) for task in tasks]
        texts = [self._trace(task, puzzle) for task, puzzle in zip(tasks, puzzles, strict=True)]
        if self.content == "shuffled":
            texts = _exchanged(texts, [len(puzzle.numbers) for puzzle in puzzles])
        return [replace(task, demonstrations=(text,)) for task, text in zip(tasks, texts, strict=True)]

    def _trace(self, task: Task, puzzle: "_Puzzle") -> str:
        """The demonstration of one task."""
        rng = Random(f"backtracked:{self.seed}:{task.key}")
        wanted = self.dead_ends + (self.content == "wrong")
        drawn: dict[Path, _End] = {}
        for _ in range(TRIES * wanted):
            if len(drawn) == wanted:
                break
            found = _wrong(puzzle, self.operators, rng)
            if found is not None:
                drawn.setdefault(found.path, found)
        if len(drawn) < wanted:
            raise UserError(
                f"task {task.key}: {wanted} different dead ends are needed, and {len(drawn)} were found for the "
                f"numbers {list(puzzle.numbers)}; give tasks with more numbers, or fewer dead ends"
            )
        ends = sorted(drawn.values(), key=lambda one: one.kept)
        solution = _End(0, puzzle.path, puzzle.answer)
        final = ends.pop() if self.content == "wrong" else solution
        text = trace([(one.kept, one.path) for one in ends], final.path, puzzle.target)
        return f" {text}\n#### {final.answer}"


class _Puzzle(NamedTuple):
    """A task with its solution."""

    numbers: tuple[int, ...]
    target: int
    answer: str
    steps: tuple[Operation, ...]

    @property
    def path(self) -> Path:
        """The steps of the solution."""
        return tuple(map(_text, self.steps))


class _End(NamedTuple):
    """A path with the expression that it computes."""

    kept: int
    """Steps of the solution before it leaves."""
    path: Path
    answer: str


class _Term(NamedTuple):
    value: int
    text: str


def _read(task: Task) -> _Puzzle:
    """The puzzle of a task. Raises `UserError` for a task that is none, or whose answer is no solution."""
    numbers, target, answer = task.fields.get("numbers"), task.fields.get("target"), str(task.answer)
    steps, used = operations(answer), numbers_used(answer)
    whole = steps and all(value.denominator == 1 for step in steps for value in (step.left, step.right, step.result))
    try:
        given = sorted(map(int, numbers or ()))
        solved = steps and sorted(used or ()) == given and evaluate(answer) == target
    except (TypeError, ValueError):
        solved = False
    if not (whole and solved and steps):
        raise UserError(
            f"task {task.key}: an expression of {numbers} that is {target} is needed as its answer, with whole results "
            f"of every step; got '{answer[:60]}'"
        )
    return _Puzzle(tuple(given), int(str(target)), answer, tuple(steps))


def _wrong(puzzle: _Puzzle, operators: str, rng: Random) -> _End | None:
    """A dead end; None where the draw ended at the target, or had no other step to take."""
    kept = rng.randrange(len(puzzle.steps))
    terms = [_Term(number, str(number)) for number in puzzle.numbers]
    path = []
    for place, step in enumerate(puzzle.steps):
        taken = _solution_step(terms, step) if place < kept else _other_step(terms, step, operators, rng)
        if taken is None:
            return None
        path.append(taken)
    return None if terms[0].value == puzzle.target else _End(kept, tuple(path), terms[0].text[1:-1])


def _solution_step(terms: list[_Term], step: Operation) -> str:
    """Combine two terms as the solution does."""
    left = terms.pop(next(i for i, term in enumerate(terms) if term.value == step.left))
    right = terms.pop(next(i for i, term in enumerate(terms) if term.value == step.right))
    terms.append(_Term(int(step.result), f"({left.text}{step.operator}{right.text})"))
    return _text(step)


def _other_step(terms: list[_Term], step: Operation, operators: str, rng: Random) -> str | None:
    """Combine two terms in another way than the solution's step; None without one."""
    found = [choice for choice in _choices(terms, operators) if not _same(choice[2], step)]
    if not found:
        return None
    i, j, taken = rng.choice(found)
    left, right = terms[i], terms[j]
    for place in sorted((i, j), reverse=True):
        terms.pop(place)
    terms.append(_Term(int(taken.result), f"({left.text}{taken.operator}{right.text})"))
    return _text(taken)


def _choices(terms: Sequence[_Term], operators: str) -> Iterator[tuple[int, int, Operation]]:
    """Every operation on two terms with a whole result that is not negative."""
    for i, left in enumerate(terms):
        for j, right in enumerate(terms):
            if i == j or left.value < right.value or (left.value == right.value and i > j):
                continue
            for operator in operators:
                if operator == "/" and (right.value == 0 or left.value % right.value):
                    continue
                done = operations(f"{left.value}{operator}{right.value}")
                if done:
                    yield i, j, done[0]


def _same(one: Operation, other: Operation) -> bool:
    """Whether two operations are the same, in either order where that does not matter."""
    swapped = Operation(one.right, one.operator, one.left, one.result)
    return one == other or (one.operator in "+*" and swapped == other)


def _text(step: Operation) -> str:
    return f"{step.left}{step.operator}{step.right}={step.result}"


def _exchanged(texts: Sequence[str], kinds: Sequence[int]) -> list[str]:
    """Each text replaced by the previous one of its kind, the first by the last."""
    last = dict(zip(kinds, texts, strict=True))
    found = []
    for text, kind in zip(texts, kinds, strict=True):
        found.append(last[kind])
        last[kind] = text
    return found
