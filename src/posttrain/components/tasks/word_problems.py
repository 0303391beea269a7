r"""Generated word problems of one to three steps with whole answers: names, things, and sentences that do not matter.

The prompt is a question in English. The demonstration is the calculation, ``8 * 5 = 40\n40 - 12 = 28\n#### 28``. No
two tasks of a source have the same numbers and steps, so held-out problems are new calculations, not only new words.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Ordered, distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.messages import to_chat
from posttrain.errors import UserError
from posttrain.types import Task

Steps = Annotated[int, Field(ge=1, le=3)]
Step = tuple[str, int]
"""``+``, ``-``, ``*`` or ``/``, and its number."""
Problem = tuple[int, tuple[Step, ...]]
"""The first number, and the steps that follow from it."""

NAMES: Final = (
    "Ada", "Ben", "Carla", "David", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Liam", "Mona", "Noah",
    "Olga", "Pedro", "Rosa", "Sam", "Tara", "Yusuf",
)  # fmt: skip
THINGS: Final = (
    "apples", "badges", "beads", "books", "buttons", "cards", "coins", "cookies", "eggs", "flowers", "marbles",
    "pencils", "shells", "stamps", "stickers", "stones", "tickets", "tomatoes",
)  # fmt: skip
STARTS: Final = ("{name} has {n} {things}.", "{name} collects {n} {things}.", "{name} starts with {n} {things}.")
PACKS: Final = (
    "{name} has {n} boxes with {k} {things} in each.",
    "{name} fills {n} bags with {k} {things} each.",
    "{name} lays {things} out in {n} rows of {k}.",
)
CHANGES: Final = {
    "+": ("{name} buys {n} more {things}.", "{other} gives {name} {n} {things}.", "{name} finds {n} more {things}."),
    "-": ("{name} gives {n} {things} to {other}.", "{name} loses {n} {things}.", "{name} sells {n} {things}."),
    "*": (
        "Later {name} has {n} times as many {things} as before.",
        "{name}'s collection of {things} grows to {n} times its size.",
    ),
    "/": (
        "{name} puts the {things} into {n} bags, the same number in each, and keeps only one bag.",
        "{name} splits the {things} into {n} equal parts and keeps only one part.",
    ),
}
QUESTION: Final = "How many {things} does {name} have now?"
DISTRACTORS: Final = (
    "{other} has {n} {more}.",
    "{name} is {n} years old.",
    "The shop is {n} minutes away.",
    "{other} was here {n} days ago.",
    "It is {n} degrees outside.",
)
INSTRUCTION: Final = "Work it out step by step. Write the final answer on the last line as: #### number"


@frozen
class WordProblems(Tasks):
    """Word problems; none has the calculation of another. A larger `size` begins with the same tasks."""

    size: PositiveInt = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    steps: Annotated[tuple[Steps, Steps], Ordered] = (1, 3)
    """Fewest and most calculations of a problem, 1 to 3, every count equally likely."""
    largest: Annotated[int, Field(ge=10, le=10_000)] = 50
    """Largest number that is added, subtracted or started from; factors and divisors are at most 12."""
    distractors: Annotated[int, Field(ge=0, le=len(DISTRACTORS))] = 1
    """Most sentences with a number that does not matter, every count from 0 on equally likely."""
    as_chat: bool = True
    """Whether each problem is a user message, for models with a chat template."""
    instruction: str = INSTRUCTION
    """Text after the question; empty for none."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn. Raises `UserError` where there are fewer."""
        problems = distinct(self._draw, self.size, f"word_problems:{self.seed}")
        found = len(set(problems))
        if found < self.size:
            raise UserError(
                f"tasks.size is {self.size:,}, and only about {found:,} different word problems were found with steps "
                f"{list(self.steps)} and numbers up to {self.largest}; lower size, or raise steps or largest"
            )
        return keyed(map(self._task, problems))

    def describe(self) -> str:
        """Difficulty, number and an example."""
        fewest, most = self.steps
        difficulty = f"{fewest} to {most} steps, numbers up to {self.largest}, up to {self.distractors} distractors"
        return describe(f"word problems ({difficulty}; seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Problem:
        """A calculation whose intermediate results are whole numbers above 0."""
        steps = rng.randint(*self.steps)
        first = rng.randint(2, self.largest)
        value, found = first, list[Step]()
        if rng.random() < 0.4:  # boxes of things
            first, each = rng.randint(2, 12), rng.randint(2, 12)
            value, found = first * each, [("*", each)]
        while len(found) < steps:
            step = self._step(rng, value)
            found.append(step)
            value = result(value, step)
        return first, tuple(found)

    def _step(self, rng: Random, value: int) -> Step:
        """A step from a value."""
        divisors = [n for n in range(2, 13) if value % n == 0 and value > n]
        kinds = ["+", *(["-"] if value > 2 else []), *(["*"] if value <= 2 * self.largest else [])]
        kind = rng.choice(kinds + (["/"] if divisors else []))
        if kind == "/":
            return kind, rng.choice(divisors)
        if kind == "*":
            return kind, rng.randint(2, 5)
        return kind, rng.randint(1, min(self.largest, value - 1) if kind == "-" else self.largest)

    def _task(self, problem: Problem) -> Task:
        lines, answer = worked(problem)
        text = self._text(problem)
        prompt = f"{text}\n{self.instruction}" if self.instruction else text
        return Task(
            key="",
            prompt=to_chat(prompt, None) if self.as_chat else f"{prompt}\n",
            answer=str(answer),
            domain=f"{len(lines)} step{'s' * (len(lines) != 1)}",
            demonstrations=("\n".join([*lines, f"#### {answer}"]),),
            fields={"calculation": lines},
        )

    def _text(self, problem: Problem) -> str:
        """The words, a function of the seed and the calculation."""
        rng = Random(f"word_problems:{self.seed}:{problem}")
        name, other = rng.sample(NAMES, 2)
        things, more = rng.sample(THINGS, 2)
        first, steps = problem
        words = {"name": name, "other": other, "things": things, "more": more}
        if steps[0][0] == "*" and first <= 12:
            sentences = [rng.choice(PACKS).format(n=first, k=steps[0][1], **words)]
            steps = steps[1:]
        else:
            sentences = [rng.choice(STARTS).format(n=first, **words)]
        sentences += [rng.choice(CHANGES[kind]).format(n=number, **words) for kind, number in steps]
        for sentence in rng.sample(DISTRACTORS, rng.randint(0, self.distractors)):
            text = sentence.format(n=rng.randint(2, self.largest), **words)
            sentences.insert(rng.randint(1, len(sentences)), text)
        return " ".join([*sentences, QUESTION.format(**words)])


def result(value: int, step: Step) -> int:
    """The value after a step; a division leaves no remainder."""
    kind, number = step
    assert kind != "/" or value % number == 0, "answers are whole"
    return {"+": value + number, "-": value - number, "*": value * number, "/": value // number}[kind]


def worked(problem: Problem) -> tuple[list[str], int]:
    """The lines of a calculation, ``8 * 5 = 40``, and the answer."""
    value, lines = problem[0], []
    for step in problem[1]:
        after = result(value, step)
        lines.append(f"{value} {step[0]} {step[1]} = {after}")
        value = after
    return lines, value
