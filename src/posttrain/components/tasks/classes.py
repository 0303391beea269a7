r"""Other tasks as classification by writing: prompts made by a strategy, one for training, one for inference.

Source: GenCLS++, He et al. 2025, arXiv:2504.19898, of which only the abstract and the titles of sections were read. Its
strategies are: examples in the prompt, definitions of the classes, a label for uncertainty, numbers without meaning as
labels, and the choice of the likeliest label (`posttrain.evaluation.candidates`); each is set apart for training and
for inference. With all of them a prompt is

    Classes: 0, 1, 2 or unsure
    0: letters never go back
    ...
    Text: abab
    Class: 2
    Text: aabc
    Class:

and the completion `` 0``. With a working line, the line and then the label: `` aa cb\n0``.

The label for uncertainty is offered and never right. Numbers are a permutation of the labels, drawn by the seed; they
are the same in training and inference. Examples are taken from the first tasks of the source, which are not tasks
themselves, so that no prompt shows the label of another task.

Differs: details that the abstract leaves open are choices of this package: the label for uncertainty counts as wrong,
examples are fixed, random, or the nearest by common pairs of letters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from random import Random
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Strategy:
    """How a classification is put."""

    definitions: bool = False
    """Whether the prompt defines the classes."""
    examples: Literal["none", "fixed", "random", "nearest"] = "none"
    """Which examples the prompt has: the same for all tasks, random ones, or those with the most similar text."""
    shots: Annotated[int, Field(ge=1, le=32)] = 2
    """Number of examples, where there are any."""
    uncertain: Annotated[str, Field(max_length=50)] = ""
    """A further label that is offered and never right, such as ``unsure``; empty offers none."""
    numbers: bool = False
    """Whether labels are replaced by numbers without meaning."""
    working: bool = False
    """Whether the demonstration has the lines before its last one, and not the label alone."""


@frozen
class Classes(Tasks):
    """Puts texts as classifications; the reference answer of a task is its label."""

    tasks: Tasks
    """The source of texts (prompts) and labels (answers)."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """What each label means, for strategies that define them."""
    training: Annotated[tuple[Strategy, ...], Field(min_length=1)] = (Strategy(),)
    """How training tasks are put; with several, alternating."""
    asked: Strategy | None = None
    """How held-out tasks are put; None is as the first of `training`."""
    pool: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of first tasks that are kept for examples; strategies with examples need some."""
    seed: NonNegativeInt = 0
    """Which numbers and random examples are drawn."""

    def load(self) -> Sequence[Task]:
        """The tasks after the pool, in their own order. Raises `UserError` for what cannot be classified."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, its labels, and the strategies."""
        labels = ", ".join(self._labels)
        return f"{self.tasks.describe()}\n{len(self._loaded):,} to classify by {len(self._labels)} labels: {labels}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _source(self) -> Sequence[Task]:
        loaded = self.tasks.load()
        for task in loaded:
            if not isinstance(task.prompt, str) or not (task.answer or "").strip():
                raise UserError(
                    f"task {task.key}: classification takes a text as the prompt and its label as the answer; give its "
                    "row columns 'prompt' and 'answer'"
                )
        return loaded

    @cached_property
    def _labels(self) -> list[str]:
        """All labels, sorted."""
        return sorted({(task.answer or "").strip() for task in self._source})

    @cached_property
    def _numbers(self) -> dict[str, str]:
        """The number of each label: a permutation."""
        numbers = list(range(len(self._labels)))
        Random(f"classes:{self.seed}").shuffle(numbers)
        return dict(zip(self._labels, map(str, numbers), strict=True))

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        strategies = (*self.training, *([self.asked] if self.asked else []))
        if len(self._labels) < 2:
            raise UserError(f"classification needs two labels or more; all answers are '{''.join(self._labels)}'")
        if any(strategy.examples != "none" and strategy.shots > self.pool for strategy in strategies):
            raise UserError(
                f"tasks.pool is {self.pool}, but a strategy shows {max(s.shots for s in strategies)} examples, which "
                "are taken from the pool; set tasks.pool to at least that"
            )
        if any(strategy.definitions for strategy in strategies):
            missing = [label for label in self._labels if label not in self.definitions]
            if missing:
                raise UserError(
                    f"tasks.definitions has none for {', '.join(missing)}, and a strategy shows definitions"
                )
        if any(strategy.uncertain in self._labels for strategy in strategies):
            raise UserError("the label for uncertainty is one of the classes; it must be another word")
        asked = self.asked or self.training[0]
        return [
            replace(
                self._put(task, self.training[place % len(self.training)]),
                asked=self._put(task, asked),
            )
            for place, task in enumerate(self._source[self.pool :])
        ]

    def _name(self, label: str, strategy: Strategy) -> str:
        return self._numbers[label] if strategy.numbers else label

    def _put(self, task: Task, strategy: Strategy) -> Task:
        """A task by a strategy."""
        names = {label: self._name(label, strategy) for label in self._labels}
        offered = ", ".join(sorted(names.values())) + (f" or {strategy.uncertain}" if strategy.uncertain else "")
        lines = [f"Classes: {offered}"]
        if strategy.definitions:
            lines += [f"{name}: {self.definitions[label]}" for label, name in sorted(names.items(), key=lambda n: n[1])]
        for shown in self._examples(task, strategy):
            lines += [f"Text: {shown.prompt}", f"Class: {names[(shown.answer or '').strip()]}"]
        name = names[(task.answer or "").strip()]
        above = [text.rpartition("\n")[0] for text in task.demonstrations] if strategy.working else []
        written = tuple(f" {line}\n{name}" for line in above if line) or (f" {name}",)
        return replace(
            task,
            prompt="\n".join([*lines, f"Text: {task.prompt}", "Class:"]),
            answer=name,
            demonstrations=written,
            domain=task.domain or (task.answer or "").strip(),
            fields={**task.fields, "candidates": [f" {own}" for own in names.values()]},
        )

    def _examples(self, task: Task, strategy: Strategy) -> Sequence[Task]:
        """The examples of a task, the nearest one last."""
        pool = self._source[: self.pool]
        if strategy.examples == "none":
            return []
        if strategy.examples == "fixed":
            return pool[: strategy.shots]
        if strategy.examples == "random":
            return Random(f"classes:{self.seed}:{task.key}").sample(list(pool), strategy.shots)
        own = _pairs(str(task.prompt))
        ranked = sorted(pool, key=lambda other: -_overlap(own, _pairs(str(other.prompt))))
        return ranked[: strategy.shots][::-1]


def _pairs(text: str) -> frozenset[str]:
    """All pairs of consecutive characters."""
    return frozenset(text[i : i + 2] for i in range(len(text) - 1))


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Share of common pairs, in [0, 1]."""
    return len(a & b) / max(len(a | b), 1)
