"""A brief with missing facts and a user who has them: questions are rewarded by what their answers add.

A brief has `facts` facts, of which `hidden` are missing; the task's key draws which, and how important each is. ``?7``
is a question for fact 7, ``?7 9`` for two at once, ``.`` ends the dialogue. The user answers every question about
facts. An answer is new if it has a fact that is missing in the brief and was not given before; a fact counts once. The
dialogue ends when everything is known, with ``.``, and after `horizon` turns.

    binary     1 for a question whose answer has a new fact
    count      the number of new facts
    fraction   that number over `hidden`
    graded     importance 1, .7 or .4 of the best new fact, less .2 for each further one in the same question
    answered   1 for any question that is answered: without the gates
    none       no rewards of turns; the verdict is the share of missing facts that are known

The optimum is the highest return of a user who knows the brief and the importances, see `Briefs.optimum`; the regret is
what an episode misses of it.

Source: arXiv:2507.21389 for the gates, hidden and new. The forms of the reward are ours, but for ``graded``, which is
that of IntentionGym in UserRL, arXiv:2509.19736 (also its end by a word, and 20 turns).

Differs: user and judge are rules, not language models, and facts are numbers. A question about something else is not
answered; there is no answer that gives away a fact by mistake.
"""

import re
import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

IMPORTANCE: Final = (1.0, 0.7, 0.4)
FURTHER: Final = 0.2
END: Final = "."
"""Ends the dialogue."""
Process = Literal["binary", "count", "fraction", "graded", "answered", "none"]


@frozen
class Briefs(Environment):
    """Answers questions about the facts of a brief."""

    facts: Annotated[int, Field(ge=1, le=99)] = 20
    """Number of facts."""
    hidden: Annotated[int, Field(ge=0, le=99)] = 6
    """How many of them are missing in the brief."""
    horizon: PositiveInt = 8
    """Turns after which the dialogue ends."""
    process: Process = "none"
    """Rewards of turns, see above."""
    cost: NonNegativeFloat = 0.0
    """Subtracted for each question, also for one that is not answered, where turns have rewards."""

    @model_validator(mode="after")
    def check_hidden(self) -> Self:
        """Refuse more missing facts than facts."""
        if self.hidden > self.facts:
            context = {"hidden": self.hidden, "facts": self.facts}
            raise PydanticCustomError("hidden", "{hidden} facts are hidden, and there are {facts}", context)
        return self

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A user with the missing facts of the task. Nothing is random."""
        rng = Random(zlib.crc32(f"briefs:{task.key}".encode()))
        missing = sorted(rng.sample(range(1, self.facts + 1), self.hidden))
        return Interview(self, {fact: rng.choice(IMPORTANCE) for fact in missing})

    def optimum(self, missing: Mapping[int, float]) -> float:
        """The highest return in an episode with these missing facts and importances.

        One question for all missing facts is best where each question is rewarded for the number of its new facts, and
        one question for each of the most important ones otherwise. Without gates the best is to ask what does not end
        the dialogue, in each turn.
        """
        if self.process == "none":
            return 1.0
        if self.process in ("count", "fraction"):
            return max((len(missing) if self.process == "count" else float(bool(missing))) - self.cost, 0.0)
        if self.process == "answered":
            goes_on = len(missing) > 1 or 0 < len(missing) < self.facts
            return (self.horizon if goes_on else 1) * max(1.0 - self.cost, 0.0)
        gains = sorted(missing.values(), reverse=True) if self.process == "graded" else [1.0] * len(missing)
        return sum(max(gain - self.cost, 0.0) for gain in gains[: self.horizon])


class Interview(Instance):
    """One dialogue."""

    def __init__(self, rules: Briefs, missing: Mapping[int, float]) -> None:
        self._rules, self._missing = rules, missing
        self._known: set[int] = set()
        self._asked: set[int] = set()
        self._turns, self._questions, self._repeats, self._visible = 0, 0, 0, 0
        self._rewarded = 0.0

    def begin(self) -> Observation:
        """The facts of the brief."""
        shown = (str(fact) for fact in range(1, self._rules.facts + 1) if fact not in self._missing)
        return self._observation(f"Known: {' '.join(shown)}\n")

    async def step(self, action: str) -> Outcome:
        """Answer a question, or end."""
        self._turns += 1
        over = self._turns == self._rules.horizon
        text = action.strip()
        if text == END:
            return Outcome(observation=self._observation("Bye.\n"), done=True)
        self._questions += 1
        asked = self._read(text)
        if asked is None:
            return Outcome(observation=self._observation("What?\n"), reward=self._reward(0.0), done=over, valid=False)
        new = [fact for fact in dict.fromkeys(asked) if fact in self._missing and fact not in self._known]
        self._repeats += any(fact in self._asked for fact in asked)
        self._visible += all(fact not in self._missing for fact in asked)
        self._asked.update(asked)
        self._known.update(new)
        answer = " ".join(str(fact) if fact in self._missing else "known" for fact in asked)
        over = over or len(self._known) == len(self._missing)
        return Outcome(observation=self._observation(f"{answer}\n"), reward=self._reward(self._gain(new)), done=over)

    async def solution(self) -> str:
        """The first fact that is missing, or the end."""
        left = [fact for fact in self._missing if fact not in self._known]
        return f"?{left[0]}" if left else END

    def verdict(self) -> Verdict:
        """Solved if everything is known; the coverage is its value where turns have no rewards."""
        solved = len(self._known) == len(self._missing)
        value = self._coverage if self._rules.process == "none" else 0.0
        return Verdict(value=value, solved=solved, explanation=f"{len(self._known)} of {len(self._missing)} facts")

    def measures(self) -> Mapping[str, float]:
        """Coverage, the shares of questions that repeat one and that are about the brief alone, and the regret."""
        questions = max(self._questions, 1)
        shares = {"repeats": self._repeats / questions, "visible": self._visible / questions}
        missed = self._rules.optimum(self._missing) - self._rewarded - self.verdict().value
        return {"coverage": self._coverage, **shares, "regret": missed}

    @property
    def _coverage(self) -> float:
        return len(self._known) / len(self._missing) if self._missing else 1.0

    def _gain(self, new: list[int]) -> float:
        process = self._rules.process
        if process == "graded":
            best = max((self._missing[fact] for fact in new), default=0.0)
            return min(max(best - FURTHER * max(len(new) - 1, 0), 0.0), 1.0)
        gains = {"binary": float(bool(new)), "count": float(len(new)), "answered": 1.0}
        return gains.get(process, len(new) / max(len(self._missing), 1))

    def _reward(self, gain: float) -> float:
        """The reward of a turn with a question, which is counted."""
        reward = 0.0 if self._rules.process == "none" else gain - self._rules.cost
        self._rewarded += reward
        return reward

    def _read(self, text: str) -> list[int] | None:
        """The facts that a question asks for; None for anything else."""
        if not re.fullmatch(r"\?[0-9]{1,2}( [0-9]{1,2})*", text):
            return None
        asked = [int(number) for number in text[1:].split()]
        return asked if all(1 <= fact <= self._rules.facts for fact in asked) else None

    def _observation(self, text: str) -> Observation:
        key = " ".join(map(str, sorted(self._known)))
        questions = [f"?{fact}" for fact in range(1, self._rules.facts + 1)]
        return Observation(text=text, state_key=key, legal=(*questions, END))
