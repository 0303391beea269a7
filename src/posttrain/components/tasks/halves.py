r"""Each of two agents has one letter of four; the answer is both, and neither can give it alone.

Contexts: ``Alice has a.`` and ``Bob has c.``; the answer is ``ac``. With ``which: shown`` there are conversations to
imitate, as each agent sees them: filler words, the letter, an answer in ``<`` and ``>`` that the other repeats. In the
share `guessed` the first agent states an answer at once, with a guess in the place of what it does not know; the other
repeats it without a word half of the time, and else corrects it.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.types import Task, Utterance

LETTERS: Final = "abcd"
FILLERS: Final = (" well", " so", " now", " yes")
CONTEXT: Final = ("Alice has ", "Bob has ")
ALONE: Final = "\n"
"""Prompt of a turn alone."""


@frozen
class Halves(Tasks):
    """Questions of two letters."""

    size: Annotated[int, Field(ge=1, le=100_000)] = 400
    """Number of questions."""
    seed: NonNegativeInt = 0
    """Which ones are drawn."""
    which: Literal["questions", "shown"] = "questions"
    """Questions, or conversations to imitate: three tasks each, one for each agent and one with a turn alone."""
    guessed: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Probability that a shown conversation begins with a guess."""
    most: Annotated[int, Field(ge=0, le=32)] = 6
    """Most filler words in a shown turn."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(task for number in range(self.size) for task in self._tasks(number))

    def describe(self) -> str:
        """Number and an example."""
        return describe("questions of which two agents know a half each", self.load())

    def _tasks(self, number: int) -> list[Task]:
        rng = Random(f"halves:{self.seed}:{number}")
        own = (rng.choice(LETTERS), rng.choice(LETTERS))
        contexts = [f"{text}{letter}.\n" for text, letter in zip(CONTEXT, own, strict=True)]
        if self.which == "questions":
            prompt = f"Question {self.seed}-{number}: which letters do both have?\n"
            return [Task(key="", prompt=prompt, answer="".join(own), fields={"contexts": contexts})]
        turns = self._shown(own, rng)
        alone = Utterance(actor="policy", text=rng.choice(turns), ended=False)
        return [*(self._view(contexts[place], turns, place) for place in range(2)), _alone(alone)]

    def _shown(self, own: tuple[str, str], rng: Random) -> list[str]:
        """The turns of a conversation."""

        def turn(text: str) -> str:
            return "".join(rng.choice(FILLERS) for _ in range(rng.randint(0, self.most))) + text

        right = f" <{own[0]}{own[1]}>\n"
        if rng.random() >= self.guessed:
            return [turn(f" {own[0]}\n"), turn(right), turn(right)]
        guess = f" <{own[0]}{rng.choice(LETTERS)}>\n"
        if guess == right or rng.random() < 0.5:
            return [guess, guess]
        return [guess, turn(right), turn(right)]

    def _view(self, context: str, turns: Sequence[str], place: int) -> Task:
        """A conversation as one of the two sees it, up to its own last turn."""
        last = max(i for i in range(len(turns)) if i % 2 == place)
        episode = tuple(
            Utterance(actor="policy" if i % 2 == place else "environment", text=text, ended=False)
            for i, text in enumerate(turns[: last + 1])
        )
        return Task(key="", prompt=context, episodes=(episode,))


def _alone(turn: Utterance) -> Task:
    """A turn without what was before it, so that a model can say how natural it is."""
    return Task(key="", prompt=ALONE, episodes=((turn,),))
