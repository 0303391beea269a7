"""Audits a reward before training: does it score right answers high, wrong ones low, and survive hostile ones?

A *probe* is a completion with what a sound reward makes of it. Each module of `posttrain.audit.probes` holds one kind;
adding a file adds a kind, and its `ABOUT`, where it has one, says whether it is for rewards that judge answers or for
those that run programs. `posttrain.audit.auditing` judges all probes in workers that can be killed, twice, and tells
what was paid that should not have been, what was not that should, what failed, what it cost, and whether it repeats.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal

from posttrain.types import StopReason, Task

Expected = Literal["paid", "unpaid", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A completion, and what a sound reward makes of it."""

    name: str
    text: str
    expected: Expected
    may_fail: bool = False
    """Whether status ``error`` is a sound answer too, as for mathematics that takes for ever."""
    of_answer: bool = False
    """Whether it is wrong only because of what it answers, which a reward for form alone does not look at."""
    stop_reason: StopReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the probes are made for: a task, and how its answers are written."""

    task: Task
    form: str = "{answer}"
    """How a completion gives an answer, with ``{answer}`` where it stands."""
    others: Sequence[str] = ()
    """Answers of other tasks."""
    first: bool = True
    """Whether it is the first subject: costly probes that do not depend on the task are tried on it only."""
    language: str = ""
    """What the reward runs: a language of programs, or nothing for a reward that judges answers."""
    canary: str = field(default="/nonexistent/canary")
    """A file that hostile code tries to make."""

    @property
    def answer(self) -> str:
        """The reference answer; of a task for programs a right one, which may be its demonstration."""
        return gold_of(self.task, self.language)

    def written(self, answer: str) -> str:
        """A completion that gives this answer."""
        return self.form.replace("{answer}", answer)

    @property
    def asked(self) -> str:
        """The prompt as text."""
        prompt = self.task.prompt
        return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def gold_of(task: Task, language: str = "") -> str:
    """What should be paid for a task; empty where it does not say."""
    shown = task.demonstrations[0] if task.demonstrations and language else ""
    return task.answer or shown


def kinds() -> list[str]:
    """The kinds of probes, in alphabetical order."""
    package = importlib.import_module("posttrain.audit.probes")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_")


def kinds_for(language: str) -> list[str]:
    """The kinds that are of use for a reward that judges answers (no language), or runs programs."""
    other = "answers" if language else "programs"
    return [kind for kind in kinds() if getattr(_module(kind), "ABOUT", "") != other]


def probes_of(kind: str, subject: Subject) -> Iterator[Probe]:
    """The probes of a kind for a subject."""
    found: Iterator[Probe] = _module(kind).probes(subject)
    yield from found


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"posttrain.audit.probes.{kind}")
