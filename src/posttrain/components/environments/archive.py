r"""A search over pages, in tags: ``<search>balo</search>`` is answered by the page that fits best.

The result is `` <information>\n...\n</information>\n``, of the highest BM25 (`posttrain.datasets.pages`), or
``nothing``. A turn that does not end with a search ends the rollout, and so does a search beyond `searches`, which is
not answered. A search without a text, or not opened, is not valid.

A task with the field ``path``, the searches of a solution, has an optimum: to find all pages that these find, or as
many of them as there are searches. The regret is the share of those that was not found.

Source: the search of MaskSearch, arXiv:2505.20285: at most 4 rounds in its demonstrations; there pages of the web.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.tasks import Tasks
from posttrain.datasets.pages import Index
from posttrain.types import Task

LONGEST = 400
"""Characters of a result."""


@frozen
class Archive(Environment):
    """Answers searches."""

    pages: Tasks
    """The pages: their prompts are searched, and shown."""
    searches: Annotated[int, Field(ge=1, le=1000)] = 4
    """Searches that are answered in a rollout."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The closing tag."""
        return ("</search>",)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A reader without searches so far. Nothing is random."""
        return Reader(self, task)

    @cached_property
    def texts(self) -> Sequence[str]:
        """The pages."""
        return [
            task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"] for task in self.pages.load()
        ]

    @cached_property
    def index(self) -> Index:
        """What finds them."""
        return Index(self.texts)


class Reader(Instance):
    """One rollout."""

    def __init__(self, rules: Archive, task: Task) -> None:
        self._rules, self._task = rules, task
        self.searched: list[str] = []
        self.read: list[int] = []

    async def step(self, action: str) -> Outcome:
        """Answer the search at the end of a turn, if there is one."""
        text = action.rstrip()
        if not text.endswith("</search>"):
            return Outcome(done=True)
        opened = re.search(r"<search>((?:(?!</?search>).)*)</search>\Z", text, re.DOTALL)
        query = opened[1].strip() if opened else ""
        self.searched.append(query)
        if len(self.searched) > self._rules.searches:
            return Outcome(done=True, valid=False)
        place = self._rules.index.best(query) if query else None
        if place is not None:
            self.read.append(place)
        page = "nothing" if place is None else self._rules.texts[place][:LONGEST]
        return Outcome(observation=Observation(text=f" <information>\n{page}\n</information>\n"), valid=bool(query))

    async def solution(self) -> str | None:
        """The next search of the task's field ``path``, then the answer; None for a task without them."""
        path, answer = self._task.fields.get("path"), self._task.answer
        if not isinstance(path, Sequence) or answer is None:
            return None
        thought = "" if self.searched else "<think>so</think>"
        if len(self.searched) < len(path):
            return f"{thought}<search>{path[len(self.searched)]}</search>"
        return f"{thought}<answer>{answer}</answer>"

    def measures(self) -> Mapping[str, float]:
        """Searches, different pages that were found, and the regret where the task has a path."""
        found = {"searches": float(len(self.searched)), "pages": float(len(set(self.read)))}
        calls = float(min(len(self.searched), self._rules.searches))
        wanted = self._wanted
        if not wanted:
            return {**found, "calls": calls}
        most = min(len(wanted), self._rules.searches)
        return {**found, "calls": calls, "regret": 1.0 - min(len(wanted & set(self.read)) / most, 1.0)}

    @property
    def _wanted(self) -> set[int]:
        """The pages that the searches of the task's path find."""
        path = self._task.fields.get("path")
        queries = path if isinstance(path, Sequence) and not isinstance(path, str) else ()
        return {place for query in queries if (place := self._rules.index.best(str(query))) is not None}
