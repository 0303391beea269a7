r"""Generated turns of a tutor: a student answers a sum of two digits, and the tutor's record states what to do.

``3+4, try 2\nStudent: 8\nTutor:`` requests a record of lines ``name: value``, as in arXiv:2402.05000: the `evaluation`
of the student's turn (a wrong, b right, c partly right, that is off by one, e off-topic, f a question), the `action` (1
hint, 2 give the solution, after three tries, 3 confirm, 12 lead back), the `state` of the problem (w not begun, x being
worked on, y solved), the `problem` and a `text`. The reference record is the demonstration, and the answer. A pair of
the task has a record with one other label in its place.

A turn whose action is to hint has the field ``told``: the same record with the solution given, for likelihoods of both.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Preference, Task

FIELDS: Final = ("evaluation", "action", "state")
LABELS: Final = {"evaluation": "abcef", "action": ("1", "2", "3", "12"), "state": "wxy"}
KINDS: Final = ("right", "wrong", "partly", "off-topic", "question")
EVALUATION: Final = dict(zip(KINDS, "bacef", strict=True))
OFF_TOPIC: Final = ("i like cats", "it rains", "lunch now", "nice day")
QUESTIONS: Final = ("what is +", "how do i begin", "why add", "is it large")
WORDS: Final = (
    *(", try ", "\nStudent: ", "\nTutor:", "evaluation: ", "action: ", "state: ", "problem: ", "text: "),
    *OFF_TOPIC,
    *QUESTIONS,
    *("count on from ", "it is ", "well done", "back to "),
)
"""Texts that are one token each for a model of these tasks."""
Drawn = tuple[int, int, int, str, str]


@frozen
class Tutoring(Tasks):
    """Turns of a tutor, with labels."""

    size: Annotated[PositiveInt, Field(le=3_000)] = 600
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(_task, distinct(self._draw, self.size, f"tutoring:{self.seed}")))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"turns of a tutor (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        """Numbers, try, kind of the student's turn, and its text."""
        a, b, turn, kind = rng.randint(0, 9), rng.randint(0, 9), rng.randint(1, 3), rng.choice(KINDS)
        total = a + b
        near = [n for n in (total - 1, total + 1) if n >= 0]
        far = [n for n in range(19) if abs(n - total) > 1]
        text = {
            "right": str(total),
            "wrong": str(rng.choice(far)),
            "partly": str(rng.choice(near)),
            "off-topic": rng.choice(OFF_TOPIC),
            "question": rng.choice(QUESTIONS),
        }[kind]
        return a, b, turn, kind, text


def _task(drawn: Drawn) -> Task:
    a, b, turn, kind, text = drawn
    labels = {"evaluation": EVALUATION[kind], **_next(kind, turn)}
    reference = _record(labels, a, b)
    rng = Random(f"tutoring:{a}+{b}:{turn}:{text}")
    name = rng.choice(FIELDS)
    other = rng.choice([label for label in LABELS[name] if label != labels[name]])
    rejected = _record({**labels, name: other}, a, b)
    further = {"told": _record({**labels, "action": "2", "state": "y"}, a, b)} if labels["action"] == "1" else {}
    return Task(
        key="",
        prompt=f"{a}+{b}, try {turn}\nStudent: {text}\nTutor:",
        answer=reference,
        domain=kind,
        demonstrations=(reference,),
        preferences=(Preference(chosen=reference, rejected=rejected),),
        fields=further,
    )


def _next(kind: str, turn: int) -> dict[str, str]:
    """Action and state."""
    if kind == "right":
        return {"action": "3", "state": "y"}
    if turn == 3 and kind in ("wrong", "partly"):
        return {"action": "2", "state": "y"}
    state = "w" if turn == 1 else "x"
    return {"action": "12" if kind == "off-topic" else "1", "state": state}


def _record(labels: dict[str, str], a: int, b: int) -> str:
    """The lines of a record."""
    text = {"1": f"count on from {a}", "2": f"it is {a + b}", "3": "well done", "12": f"back to {a}+{b}"}
    lines = [f"{name}: {labels[name]}" for name in FIELDS]
    return "\n".join(["", *lines, f"problem: {a}+{b}", f"text: {text[labels['action']]}"])
