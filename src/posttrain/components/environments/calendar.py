"""Two diaries: read them day by day, and book the earliest time at which both people are free.

    ann 2       what is free on Ann's second day: ``free at 1 4 5``
    bob 2       the same of Bob
    book 2 4    books the fourth hour of the second day, and ends the episode

The task's key draws both diaries. The verdict is 1 for the earliest common hour, and for a later common one the less
the more hours it is later; 0 for an hour at which one of the two is busy, and without a booking. The optimum is exact:
the first hour that is free in both, after reading both people's days up to it.

Source: the setting of meeting planning in Natural Plan, arXiv:2406.04520, where the times that fit all people's
constraints are found exactly; the diaries, their calls and the value of a later hour are ours.
"""

import re
import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

PEOPLE: Final = ("ann", "bob")
_CALL: Final = re.compile(r"(ann|bob) (\d{1,2})|book (\d{1,2}) (\d{1,2})")


@frozen
class Calendar(Environment):
    """One meeting per rollout."""

    days: Annotated[int, Field(ge=1, le=10)] = 3
    """Days of a diary."""
    hours: Annotated[int, Field(ge=1, le=10)] = 5
    """Hours of a day."""
    busy: Annotated[float, Field(ge=0.0, le=0.9)] = 0.6
    """Probability that a person is busy in an hour."""
    horizon: PositiveInt = 8
    """Turns after which the episode ends."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The diaries of the task. Nothing is random."""
        rng = Random(zlib.crc32(f"calendar:{task.key}".encode()))
        count = self.days * self.hours
        free = [[rng.random() >= self.busy for _ in range(count)] for _ in PEOPLE]
        if not any(map(all, zip(*free, strict=True))):
            hour = rng.randrange(count)
            for own in free:
                own[hour] = True
        return Planning(self, free)


class Planning(Instance):
    """One episode."""

    def __init__(self, rules: Calendar, free: list[list[bool]]) -> None:
        self._rules, self._free = rules, free
        self._common = [hour for hour, both in enumerate(zip(*free, strict=True)) if all(both)]
        self._read: set[tuple[int, int]] = set()
        self._turns, self._failed = 0, 0
        self._booked: int | None = None

    @property
    def _shortest(self) -> int:
        """Turns of the shortest plan: both people's days up to the earliest common hour, and the booking."""
        return 2 * (self._common[0] // self._rules.hours + 1) + 1

    def begin(self) -> Observation:
        """Nothing has been read."""
        return self._observation("Book the earliest hour at which ann and bob are free.")

    async def step(self, action: str) -> Outcome:
        """Read a day, or book."""
        self._turns += 1
        over = self._turns == self._rules.horizon
        call = _CALL.fullmatch(action.strip())
        day = int(call[2] or call[3]) - 1 if call else -1
        hour = int(call[4]) - 1 if call and call[4] else 0
        if call is None or not 0 <= day < self._rules.days or not 0 <= hour < self._rules.hours:
            self._failed += 1
            return Outcome(observation=self._observation("error"), done=over, valid=False)
        if call[4]:
            self._booked = day * self._rules.hours + hour
            return Outcome(observation=self._observation("booked"), done=True)
        person = PEOPLE.index(call[1])
        self._read.add((person, day))
        begin = day * self._rules.hours
        own = self._free[person][begin : begin + self._rules.hours]
        found = " ".join(str(place) for place, free in enumerate(own, start=1) if free)
        return Outcome(observation=self._observation(f"free at {found}" if found else "busy"), done=over)

    async def solution(self) -> str:
        """The next day that is needed, or the booking."""
        day, hour = divmod(self._common[0], self._rules.hours)
        for earlier in range(day + 1):
            for person, name in enumerate(PEOPLE):
                if (person, earlier) not in self._read:
                    return f"{name} {earlier + 1}"
        return f"book {day + 1} {hour + 1}"

    def verdict(self) -> Verdict:
        """How early the booked hour is among those from the earliest common one on."""
        first = self._common[0]
        value = 0.0
        if self._booked in self._common:
            value = 1.0 - (self._booked - first) / (len(self._free[0]) - first)
        where = "no hour" if self._booked is None else f"hour {self._booked + 1}"
        return Verdict(value=value, solved=self._booked == first, explanation=f"{where} is booked, {first + 1} is best")

    def measures(self) -> Mapping[str, float]:
        """What the value misses, turns beyond the shortest plan, and calls that failed."""
        extra = max(self._turns - self._shortest, 0)
        return {"regret": 1.0 - self.verdict().value, "extra_turns": float(extra), "failed": float(self._failed)}

    def _observation(self, text: str) -> Observation:
        days, hours = range(1, self._rules.days + 1), range(1, self._rules.hours + 1)
        reads = [f"{name} {day}" for day in days for name in PEOPLE]
        known = " ".join(f"{PEOPLE[person]}{day + 1}" for person, day in sorted(self._read))
        books = [f"book {day} {hour}" for day in days for hour in hours]
        return Observation(text=f"\n{text}\n", state_key=known, legal=(*reads, *books))
