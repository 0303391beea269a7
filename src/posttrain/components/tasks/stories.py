r"""Generated stories of who moved what where, with a question that depends on the order of the events.

The prompt is ``Ann key box. Bob cup jar. Ann key bag. key?\n``: each event names a person, a thing and the place that
it is put. The answer to ``key?`` is the last of its places, ``bag``; that to ``key by?`` is who moved it last. The
field ``shuffled`` has the same story with its events in another order, in which that answer would be another one.

A share `controls` of the questions does not depend on the order, and has no copy: ``key how often?`` is answered by
``2``.

Demonstrations have one of three styles at random: the answer alone, a short context, or a thought: ``<answer>bag
</answer>``, ``<context>key</context><answer>bag</answer>``, ``<think>box bag</think><answer>bag</answer>``. With
probability `right` they are correct, else the answer is one of the thing's other places, or of the people.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

PEOPLE: Final = ("Ann", "Bob", "Cy", "Dee", "Eve", "Fay")
THINGS: Final = ("key", "cup", "hat", "pen", "map", "nut")
PLACES: Final = ("box", "bag", "jar", "bed", "shed", "tin", "sack", "pot")
LEVELS: Final = {1: (2, 1), 2: (3, 2), 3: (4, 2), 4: (6, 3), 5: (9, 4)}
"""By level: events, and things."""
WORDS: Final = (
    *(" ", ". ", "?\n", " by?\n", " how often?\n", "<think>", "</think>", "<context>", "</context>"),
    *("<answer>", "</answer>", *PEOPLE, *THINGS, *PLACES),
)
"""Texts that are one token each for a model of these tasks."""
STYLES: Final = r"(<think>[^<>]*</think>|<context>[^<>]*</context>)?<answer>[^<>]*</answer>"
"""The form of an answer in any of the styles, as a regular expression."""
Event = tuple[str, str, str]


@dataclass(frozen=True)
class Drawn:
    """A story and its question; stories that differ in the copy alone are equal."""

    events: tuple[Event, ...]
    copy: tuple[Event, ...] = field(compare=False)
    asked: str
    kind: str


@frozen
class Stories(Tasks):
    """Stories of moved things, with questions about the last event or about all of them."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of stories."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    level: Annotated[int, Field(ge=1, le=5)] = 2
    """Difficulty: more events and things."""
    controls: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """Share of questions that do not depend on the order."""
    right: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Share of demonstrations with the right answer."""
    order: bool = True
    """Whether the prompt has the events in order; false gives the shuffled copies, with the answers of the stories."""

    def load(self) -> Sequence[Task]:
        """The stories, in the order in which they are drawn."""
        tasks = keyed(map(self._task, distinct(self._draw, self.size, f"stories:{self.level}:{self.seed}")))
        return tasks if self.order else keyed([_copy(task) for task in tasks if "shuffled" in task.fields])

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"stories of moved things (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        count, most = LEVELS[self.level]
        kind = "how often" if rng.random() < self.controls else rng.choice(("where", "by"))
        while True:
            things = rng.sample(THINGS, most)
            events = tuple((rng.choice(PEOPLE), rng.choice(things), rng.choice(PLACES)) for _ in range(count))
            asked = rng.choice(events)[1]
            copy = tuple(rng.sample(events, count))
            if kind == "how often" or answer_of(events, asked, kind) != answer_of(copy, asked, kind):
                return Drawn(events, copy, asked, kind)

    def _task(self, drawn: Drawn) -> Task:
        events, copy, asked, kind = drawn.events, drawn.copy, drawn.asked, drawn.kind
        answer = answer_of(events, asked, kind)
        rng = Random(f"stories:{self.seed}:{(events, copy, asked, kind)}")
        seen = [place if kind == "where" else person for person, thing, place in events if thing == asked]
        others = {"where": seen, "by": [*seen, *PEOPLE], "how often": list("123456789"[: len(events)])}[kind]
        wrong = [other for other in others if other != answer]
        shown = answer if rng.random() < self.right or not wrong else rng.choice(wrong)
        before = rng.choice(("", f"<context>{asked}</context>", f"<think>{' '.join(seen)}</think>"))
        return Task(
            key="",
            prompt=written(events, asked, kind),
            answer=answer,
            domain="control" if kind == "how often" else "ordered",
            demonstrations=(f"{before}<answer>{shown}</answer>",),
            fields={} if kind == "how often" else {"shuffled": written(copy, asked, kind)},
        )


def written(events: Sequence[Event], asked: str, kind: str) -> str:
    """A story and its question."""
    question = {"where": f"{asked}?\n", "by": f"{asked} by?\n", "how often": f"{asked} how often?\n"}[kind]
    return "".join(f"{' '.join(event)}. " for event in events) + question


def answer_of(events: Sequence[Event], asked: str, kind: str) -> str:
    """The answer to a question about a thing that is in the story."""
    own = [event for event in events if event[1] == asked]
    return {"where": own[-1][2], "by": own[-1][0], "how often": str(len(own))}[kind]


def _copy(task: Task) -> Task:
    """The shuffled copy of a story as a task of its own."""
    return Task(key="", prompt=task.fields["shuffled"], answer=task.answer, domain="shuffled")
