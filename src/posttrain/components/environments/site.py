"""A web site of four pages in a row: each has five links, one of which leads on, and only the end shows whether it did.

A page is ``2c``: its number and a letter. Which link is the right one is a function of both that is the same on all
sites. A wrong link leads to pages that look like others, from which the goal cannot be reached. Letters are drawn by
the task's key and the links that were taken. The reward is 1 for four right links. With `spare` a wrong link leads back
to its page, so that an episode with some wrong links may reach the goal, and its reward is that of one without.

The environment's own player takes the right links. A `flawed` one takes a wrong one, always the same, on pages with the
letters d and e: 13 % of its episodes succeed.

Source: the smallest experiment of Agent Q, arXiv:2408.07199; the site is ours.
"""

import zlib
from collections.abc import Mapping
from random import Random
from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

LETTERS: Final = "abcde"
"""Of pages, and of links."""


def right_link(page: int, letter: str) -> str:
    """The link that leads on."""
    order = Random(zlib.crc32(f"site:{page}".encode())).sample(LETTERS, len(LETTERS))
    return order[LETTERS.index(letter)]


@frozen
class Site(Environment):
    """One site per task."""

    pages: Annotated[int, Field(ge=1, le=20)] = 4
    """Pages before the goal."""
    spare: Annotated[int, Field(ge=0, le=20)] = 0
    """Wrong links that lead back to their page instead; one more ends the episode."""
    flawed: bool = False
    """Whether the environment's own player takes wrong links on some pages."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The site of the task. Nothing is random."""
        return Visit(self, task.key)


class Visit(Instance):
    """One rollout."""

    def __init__(self, rules: Site, key: str) -> None:
        self._rules, self._key, self._path, self._right, self._wrong = rules, key, "", 0, 0

    def begin(self) -> Observation:
        """The first page."""
        return self._observation()

    async def step(self, action: str) -> Outcome:
        """Follow a link; anything else is a link that leads nowhere."""
        link = action.strip()
        valid = len(link) == 1 and link in LETTERS
        right = link == right_link(len(self._path), self._letter)
        self._right += right
        self._wrong += not right
        if right or not self._rules.spare:
            self._path += link if valid else "-"
        lost = bool(self._rules.spare) and self._wrong > self._rules.spare
        done = lost or len(self._path) == self._rules.pages
        return Outcome(observation=self._observation(), done=done, valid=valid)

    async def solution(self) -> str:
        """The right link, or that of a player who is wrong on pages d and e."""
        link = right_link(len(self._path), self._letter)
        wrong = self._rules.flawed and self._letter in "de"
        return LETTERS[(LETTERS.index(link) + 1) % len(LETTERS)] if wrong else link

    def verdict(self) -> Verdict:
        """1 for the goal."""
        solved = self._right == self._rules.pages
        return Verdict(value=float(solved), solved=solved, explanation=f"{self._right} right links")

    def measures(self) -> Mapping[str, float]:
        """Right links, and what the verdict misses of 1: from every page one link leads on."""
        return {"right_links": float(self._right), "regret": 1.0 - self.verdict().value}

    @property
    def _letter(self) -> str:
        return LETTERS[zlib.crc32(f"{self._key}:{self._path}".encode()) % len(LETTERS)]

    def _observation(self) -> Observation:
        page = f"{len(self._path)}{self._letter}"
        return Observation(text=f"\n{page}\n", state_key=page, legal=tuple(LETTERS))
