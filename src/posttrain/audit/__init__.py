"""Audits a reward before training: does it score correct answers high, incorrect ones low, and withstand hostile ones?

A *probe* is a completion with its expected outcome. Each module of `posttrain.audit.probes` holds one kind of probes;
adding a file adds a kind. The optional constant `ABOUT` of a module restricts it to rewards that score answers or to
those that run programs, `FIELDS` to tasks with these fields. `posttrain.audit.auditing` scores all probes twice, in
workers that can be killed, and reports false positives, false negatives, errors, processor time, and scores that differ
between the two times.
"""

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Literal

from posttrain.types import StopReason, Task

Expected = Literal["rewarded", "unrewarded", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A completion and its expected outcome."""

    name: str
    text: str
    expected: Expected
    may_fail: bool = False
    """Whether status ``error`` is acceptable too, for example for mathematics that does not terminate."""
    of_answer: bool = False
    """Whether only its answer is wrong, which a reward for format does not check."""
    stop_reason: StopReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A task to make probes for, and the format of its answers."""

    task: Task
    form: str = "{answer}"
    """A completion with ``{answer}`` in place of the answer."""
    others: Sequence[str] = ()
    """Answers of other tasks."""
    frequent: str = ""
    """The most frequent answer of all tasks."""
    first: bool = True
    """Whether it is the first subject; expensive probes that do not depend on the task are made for it only."""
    language: str = ""
    """The language of the programs that the reward runs; empty for a reward that scores answers."""
    gold: str = ""
    """The answer as the layout of the reward has it, where it has one of its own (`Reward.gold`)."""
    canary: str = field(default="/nonexistent/canary")
    """A file that hostile code tries to create."""

    @property
    def answer(self) -> str:
        """The reference answer; of a task for programs, a correct program, which may be its demonstration."""
        return self.gold or gold_of(self.task, self.language)

    def written(self, answer: str) -> str:
        """A completion that gives this answer."""
        return self.form.replace("{answer}", answer)

    @property
    def takes_texts(self) -> bool:
        """Whether texts without content are tried: of programs, each of which takes a process, for the first task."""
        return self.first or not self.language

    @property
    def prompt_text(self) -> str:
        """The prompt as text."""
        prompt = self.task.prompt
        return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def gold_of(task: Task, language: str = "") -> str:
    """A correct answer of a task, or a correct program if there is a language; empty if the task has none."""
    demonstration = task.demonstrations[0] if task.demonstrations and language else ""
    return task.answer or demonstration


def kinds() -> list[str]:
    """The kinds of probes, in alphabetical order."""
    package = importlib.import_module("posttrain.audit.probes")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_")


def kinds_for(language: str, fields: Collection[str] = ()) -> list[str]:
    """The kinds for a reward that scores answers (no language), or that runs programs, and tasks with these fields."""
    other = "answers" if language else "programs"
    about = [kind for kind in kinds() if getattr(_module(kind), "ABOUT", "") != other]
    return [kind for kind in about if set(getattr(_module(kind), "FIELDS", ())) <= set(fields)]


def probes_of(kind: str, subject: Subject) -> Iterator[Probe]:
    """The probes of a kind for a subject."""
    found: Iterator[Probe] = _module(kind).probes(subject)
    yield from found


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"posttrain.audit.probes.{kind}")
