r"""Logged calls of donors (`environments/donor`), most of them with the wrong plea, and better turns in hindsight.

``logged`` has one episode for each task, whose reward is in the field ``rewards``; the plea is the wrong one in the
share `wrong`. ``hindsight`` has requests to a controller, who reads a finished call and its start up to a turn, and a
better turn as the demonstration: the other plea where the donor answered no, the same one else, and the other greeting.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.templates import fill
from posttrain.types import Task, Utterance

REQUEST: Final = "{dialogue}---\n{prefix}better: "
OPENING: Final = "a donor\n"
GREETINGS: Final = ("hello\n", "hi\n")
PLEAS: Final = ("story\n", "facts\n")
SHOWN: Final = ("i am warm\n", "i am cool\n")
ANSWERS: Final = ("no\n", "yes\n")


@frozen
class Pleas(Tasks):
    """Calls of donors."""

    size: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which are drawn."""
    which: Literal["logged", "hindsight"] = "logged"
    """Logged calls, or requests to a controller."""
    wrong: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    """Probability that the plea of a logged call does not suit."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        plain = keyed(Task(key="", prompt=f"call {self.seed}-{number}: ") for number in range(self.size))
        tasks = [self._task(task, number) for number, task in enumerate(plain)]
        return tasks if self.which == "logged" else keyed(tasks)

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"calls of donors ({self.which})", self.load())

    def _task(self, task: Task, number: int) -> Task:
        rng = Random(f"pleas:{self.seed}:{number}")
        kind = Random(f"donor:{task.key}").randrange(2)  # as the environment draws it
        right = rng.random() >= self.wrong if self.which == "logged" else rng.random() < 0.5
        greeting, plea = rng.choice(GREETINGS), PLEAS[kind if right else 1 - kind]
        texts = [OPENING, greeting, SHOWN[kind], plea, ANSWERS[right]]
        if self.which == "hindsight":
            place = rng.choice((1, 3))
            better = PLEAS[kind] if place == 3 else GREETINGS[1 - GREETINGS.index(greeting)]
            prompt = fill(REQUEST, {"dialogue": "".join(texts), "prefix": "".join(texts[:place])})
            shown = (Utterance(actor="policy", text=better, ended=False),)
            return Task(key="", prompt=prompt, episodes=(shown,))
        episode = tuple(
            Utterance(actor="policy" if place % 2 else "environment", text=text, ended=False)
            for place, text in enumerate(texts[:-1])
        )
        return Task(
            key=task.key,
            prompt=task.prompt,
            episodes=(episode,),
            fields={"rewards": [float(right)], "closing": [ANSWERS[right]]},
        )
