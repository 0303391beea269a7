"""Questions about states of a meeting game in three categories: the environment, the partner's mind, a joint plan.

The game is `datasets/meeting`. A question has four options with letters; the domain is its category. Several letters
may be right: the reference answer is then a list. `reward=match` grades both.

    environment       where a step leads
    theory of mind    where a partner goes who follows the last word, or goes to the cell that it names
    joint planning    on which cell both can stand after one step each

Source: the coordination questions of LLM-Coordination, arXiv:2310.03903: three categories, graded by the letter. Ours
are made by rules, 198 of them by default as there.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.datasets.meeting import STEPS, State, scripted
from posttrain.types import Task

CATEGORIES: Final = ("environment", "theory of mind", "joint planning")
LETTERS: Final = "ABCD"
RING: Final = 9


@frozen
class MeetingQuestions(Tasks):
    """Questions with four options."""

    size: Annotated[int, Field(ge=1, le=500)] = 198
    """Number of questions; the categories are equally likely."""
    seed: NonNegativeInt = 0
    """Which ones are drawn."""

    def load(self) -> Sequence[Task]:
        """The questions, in the order in which they are drawn."""
        drawn = distinct(self._draw, self.size, f"meeting_questions:{self.seed}")
        return keyed(self._task(*question) for question in drawn)

    def describe(self) -> str:
        """Number and an example."""
        return describe("questions about a meeting game", self.load())

    def _draw(self, rng: Random) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
        """Category, question, options, and those of them that are right."""
        place, other = rng.sample(range(RING), 2)
        step = rng.choice(sorted(STEPS))
        category = rng.choice(CATEGORIES)
        if category == "environment":
            right = {(place + STEPS[step]) % RING}
            text = f"You stand on cell {place} and step {step}. Where do you stand?"
        elif category == "theory of mind":
            name = rng.choice(("follow", "named"))
            word = rng.randrange(RING)
            player = scripted("follow" if name == "follow" else f"cell_{word}", RING)
            assert player is not None, "both names have a player"
            state = State(places=(other, place), heard=(word, None), ring=RING, limit=6)
            right = {state.after(player(state)).places[0]}
            habit = (
                "goes to the cell that it hears, and hears" if name == "follow" else "goes to the cell that it names,"
            )
            text = f"Your partner stands on cell {other}. It {habit} {word}. Where does it stand after one step?"
        else:
            other = (place + rng.choice((-2, -1, 1, 2))) % RING
            right = _reached(place) & _reached(other)
            text = f"You stand on cell {place}, your partner on cell {other}. Where can both stand after one step each?"
        wrong = [cell for cell in range(RING) if cell not in right]
        shown = sorted(right)[:3]
        options = shown + rng.sample(wrong, 4 - len(shown))
        rng.shuffle(options)
        return category, text, tuple(options), tuple(sorted(right))

    def _task(self, category: str, text: str, options: Sequence[int], right: Sequence[int]) -> Task:
        offered = " ".join(f"{mark} {cell}" for mark, cell in zip(LETTERS, options, strict=True))
        letters = [mark for mark, cell in zip(LETTERS, options, strict=True) if cell in right]
        return Task(
            key="",
            prompt=f"Q: A ring of {RING} cells. {text}\n{offered}\nA:",
            answer=letters[0] if len(letters) == 1 else json.dumps(letters),
            domain=category,
            demonstrations=(f" #### {letters[0]}",),
            fields={"options": [str(cell) for cell in options]},
        )


def _reached(place: int) -> set[int]:
    return {(place + step) % RING for step in STEPS.values()}
