"""A user with a ticket: what it is about has to be asked for, and then it is sent to the desk that fits.

A ticket has `facts` yes-no facts, drawn by the task's key. ``?2`` requests the second one; ``=101`` sends the ticket to
the desk of these facts and ends the dialogue; the verdict is 1 for the right desk. The optimum requests every fact
once: facts + 1 turns.

Source: the interface of the gyms of UserRL, arXiv:2509.19736: asking and answering by turns, a reward each turn, which
its environment also writes into the observation ("Reward: 0").

Differs: the user is a rule, not a language model.
"""

import re
import zlib
from collections.abc import Mapping
from itertools import product
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task


@frozen
class Tickets(Environment):
    """Answers questions about a hidden ticket."""

    facts: Annotated[int, Field(ge=1, le=10)] = 3
    """Yes-no facts of a ticket; there is a desk for each combination."""
    horizon: PositiveInt = 8
    """Turns after which the dialogue ends."""
    shown: bool = False
    """Whether the reward of the turn stands in the observation."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A user with the ticket of the task. Nothing is random."""
        drawn = zlib.crc32(f"tickets:{task.key}".encode())
        return Ticket(self, "".join(str(drawn >> place & 1) for place in range(self.facts)))


class Ticket(Instance):
    """One dialogue."""

    def __init__(self, rules: Tickets, facts: str) -> None:
        self._rules, self._facts = rules, facts
        self._known: dict[int, str] = {}
        self._turns, self._repeats, self._sent = 0, 0, ""

    def begin(self) -> Observation:
        """Nothing is known yet."""
        return self._observation("Hello.")

    async def step(self, action: str) -> Outcome:
        """Answer a question, or take the ticket's desk."""
        self._turns += 1
        over = self._turns == self._rules.horizon
        text = action.strip()
        if re.fullmatch(f"=[01]{{{self._rules.facts}}}", text):
            self._sent = text[1:]
            right = float(self._sent == self._facts)
            return Outcome(observation=self._observation("Sent.", right), done=True)
        asked = int(text[1:]) - 1 if re.fullmatch(r"\?[1-9]\d?", text) else -1
        if not 0 <= asked < self._rules.facts:
            return Outcome(observation=self._observation("Pardon?", 0.0), done=over, valid=False)
        self._repeats += asked in self._known
        self._known[asked] = self._facts[asked]
        answer = "Yes." if self._facts[asked] == "1" else "No."
        return Outcome(observation=self._observation(answer, 0.0), done=over)

    async def solution(self) -> str:
        """The first unknown fact, or the desk."""
        unknown = [place for place in range(self._rules.facts) if place not in self._known]
        return f"?{unknown[0] + 1}" if unknown else f"={self._facts}"

    def verdict(self) -> Verdict:
        """1 for a ticket that was sent to its desk."""
        solved = self._sent == self._facts
        return Verdict(
            value=float(solved), solved=solved, explanation=f"sent to {self._sent or 'no desk'}, {self._facts} is right"
        )

    def measures(self) -> Mapping[str, float]:
        """Questions that were asked before, and what the verdict misses of 1."""
        return {"repeats": float(self._repeats), "regret": 1.0 - self.verdict().value}

    def _observation(self, text: str, reward: float | None = None) -> Observation:
        known = "".join(self._known.get(place, "?") for place in range(self._rules.facts))
        shown = f" Reward: {reward:g}" if self._rules.shown and reward is not None else ""
        questions = [f"?{place + 1}" for place in range(self._rules.facts)]
        desks = [f"={''.join(bits)}" for bits in product("01", repeat=self._rules.facts)]
        return Observation(text=f"\n{text}{shown}\n", state_key=known, legal=(*questions, *desks))
