"""Audits a judge: which of two answers does it prefer, and for what reasons beside the right one?

A judge is anything that gives a `Verdict` on two answers to a task, shown in an order: a reward, with models or without
(`posttrain.audit.judges.rewarded`), or a simulated one with a planted fault (`posttrain.audit.judges.planted`).
Gold pairs are data with a chosen and a rejected answer:

    {"prompt": "What is 6 * 7?", "chosen": "42", "rejected": "41", "strength": 2, "category": "sums",
     "writer_chosen": "model-a", "writer_rejected": "model-b", "principle": "short", "answer": "42"}

All but the first three are optional: ``strength`` is how clear the label is (1 without it), writers are for a judge
that prefers its own answers, and rows of the same answers under different principles, with opposite labels, show
whether a judge reads the principle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from posttrain.errors import UserError
from posttrain.grading.extraction import shown
from posttrain.types import Message, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Two answers as they are shown to a judge."""

    task: Task
    first: str
    second: str
    repeat: int = 0
    """Number of the repetition, from 0."""

    @property
    def swapped(self) -> "Shown":
        """The same in the other order."""
        return replace(self, first=self.second, second=self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge gives for two answers."""

    margin: float | None
    """How much better the first is, in the judge's own unit; 0 is a tie, None a reply that cannot be read."""
    chance: float | None = None
    """Probability that the first is better, of a judge that states one."""
    reply: str = ""
    fault: str = ""
    """Why there is no margin."""

    @property
    def win(self) -> float | None:
        """1 where the first is preferred, 0 where the second is, one half for a tie; None without a margin."""
        return None if self.margin is None else 0.5 + 0.5 * (self.margin > 0) - 0.5 * (self.margin < 0)


class Judge(Protocol):
    """Compares two answers. A verdict does not depend on what else is compared."""

    @property
    def name(self) -> str:
        """Its name, for reports."""
        ...

    def verdicts(self, shown: Sequence[Shown]) -> list[Verdict]:
        """A verdict for each, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldPair:
    """Two answers of which one is known to be better."""

    task: Task
    chosen: str
    rejected: str
    strength: float = 1.0
    own: float = 0.0
    """1 where the chosen one alone is written by the judge's model, -1 where the rejected one alone is, else 0."""
    principle: str = ""

    def shown(self, *, chosen_first: bool = True, repeat: int = 0) -> Shown:
        """The pair in one of its orders."""
        answers = (self.chosen, self.rejected) if chosen_first else (self.rejected, self.chosen)
        return Shown(task=self.task, first=answers[0], second=answers[1], repeat=repeat)

    @property
    def cluster(self) -> str:
        """What makes pairs depend on one another: the prompt."""
        return str(self.task.fields.get("prompt_key", prompt_of(self.task)))


def gold_pairs(tasks: Sequence[Task], writer: str = "") -> list[GoldPair]:
    """The gold pairs of tasks; `writer` is the name of the judge's model among the writers.

    Raises `UserError` without pairs, and for a pair of equal answers.
    """
    pairs = []
    for task in tasks:
        for preference in task.preferences:
            principle = preference.principle or ""
            if preference.chosen == preference.rejected:
                raise UserError(
                    f"task {task.key}: chosen and rejected are equal ({shown(preference.chosen, 100)} to the prompt "
                    f"{shown(prompt_of(task), 100)}), so no label is right; remove the row"
                )
            writers = [task.fields.get(f"writer_{side}") for side in ("chosen", "rejected")]
            own = float(writers[0] == writer) - float(writers[1] == writer) if writer else 0.0
            pairs.append(
                GoldPair(
                    task=under(task, principle),
                    chosen=preference.chosen,
                    rejected=preference.rejected,
                    strength=1.0 if preference.strength is None else float(preference.strength),
                    own=own,
                    principle=principle,
                )
            )
    if not pairs:
        raise UserError(
            f"the gold data has no pair: none of its {len(tasks)} rows has two answers, of which one is known to be "
            "better; give rows with the columns prompt, chosen and rejected"
        )
    return pairs


def under(task: Task, principle: str) -> Task:
    """The task with a principle at the end of its prompt; the task itself without one."""
    if not principle:
        return task
    fields = {**task.fields, "prompt_key": prompt_of(task), "principle": principle}
    text = f"\n\nThe better answer is the one that follows this principle: {principle}"
    if isinstance(task.prompt, str):
        return replace(task, prompt=task.prompt + text, fields=fields)
    *before, last = task.prompt
    return replace(task, prompt=(*before, Message(role=last["role"], content=last["content"] + text)), fields=fields)


def prompt_of(task: Task) -> str:
    """The prompt as one text."""
    return task.prompt if isinstance(task.prompt, str) else "\n".join(message["content"] for message in task.prompt)


def category_of(pair: GoldPair) -> str:
    """The category of a pair: its column ``category`` or ``subset``."""
    return pair.task.domain or str(pair.task.fields.get("subset") or "")
