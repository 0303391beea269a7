"""What each column of a data set is: found by its name, or said by the user.

The table of names is `NAMES`; docs/data.md shows it to users. A name is looked for as it stands, then without regard
to capitals; one with a dot is a value inside another (``reward_model.ground_truth``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from posttrain.component import nearest
from posttrain.datasets.rows import Row
from posttrain.errors import UserError

Role = Literal[
    "prompt",
    "messages",
    "text",
    "answer",
    "demonstrations",
    "chosen",
    "rejected",
    "completion",
    "rating",
    "domain",
    "images",
    "key",
]
"""What a column can be."""

NAMES: Mapping[Role, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "problem", "query", "instruction", "input"),
    "messages": ("messages", "conversations"),
    "text": ("text",),
    "answer": ("answer", "ground_truth", "reward_model.ground_truth", "target", "gold", "solution"),
    "demonstrations": ("demonstrations", "demonstration", "completion", "response", "output"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "completion": ("completion", "response", "output"),
    "rating": ("label", "rating", "reward", "score"),
    "domain": ("domain", "category", "subject", "data_source", "source_dataset", "metadata.source_dataset"),
    "images": ("images", "image"),
    "key": ("id", "key", "task_id", "unique_id"),
}
"""Column names that are recognised, in the order in which they are preferred."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The column of each role; None where the data has none."""

    prompt: str | None = None
    """Text, or messages. None for preference pairs that hold the prompt themselves, and for plain text."""
    context: str | None = None
    """The ``input`` beside an ``instruction``: a second part of the prompt."""
    messages: str | None = None
    """Like `prompt`, but a last message by the assistant is a demonstration."""
    text: str | None = None
    """Plain text to be imitated as it stands."""
    answer: str | None = None
    demonstrations: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    completion: str | None = None
    rating: str | None = None
    domain: str | None = None
    images: str | None = None
    """One picture, or a list of them."""
    keys: tuple[str, ...] = ()
    """Columns that may name the rows, if their values differ."""

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Columns that every row must have a value in."""
        columns = (self.prompt, self.messages, self.text, self.chosen, self.rejected, self.completion, self.rating)
        return tuple(column for column in columns if column is not None)

    @cached_property
    def asked(self) -> frozenset[str]:
        """Columns that the prompt was made of, which therefore are not fields of the task."""
        columns = (self.prompt, self.context, self.messages, self.text, self.images)
        return frozenset(column for column in columns if column)


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or None; a dotted name reaches into a value that is a mapping."""
    if column in values:
        return values[column]
    head, _, rest = column.partition(".")
    inner = values.get(head)
    return lookup(inner, rest) if rest and isinstance(inner, Mapping) else None


def rating_of(value: Any, column: str) -> float | None:
    """A rating as a number; None for what is none. A ``label`` must be true or false, or 1 or 0."""
    if isinstance(value, str):
        named = {"true": 1.0, "false": 0.0}.get(value.strip().lower())
        try:
            value = float(value) if named is None else named
        except ValueError:
            return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return None if column.lower() == "label" and value not in (0, 1) else float(value)


def detect(rows: Sequence[Row], said: Mapping[Role, str | None], name: str) -> Layout:
    """Find the column of each role, `said` going first. Raises `UserError` where no prompt can be found."""
    first: dict[str, Any] = {}
    for row in rows:
        for column, value in row.values.items():
            if value is not None and column not in first:
                first[column] = value
    for role, named in said.items():
        if named is not None and all(lookup(row.values, named) is None for row in rows):
            raise UserError(
                f"{name}: columns.{role} names '{named}', which no row has a value in; {nearest(named, first)}; "
                f"the columns are {quoted(first)}"
            )
    return _Detection(first, said, name).layout()


def quoted(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(f"'{name}'" for name in names) or "none"


class _Detection:
    """The decisions about one data set: `first` holds the first value of every column that has one."""

    def __init__(self, first: dict[str, Any], said: Mapping[Role, str | None], name: str) -> None:
        self.first = first
        self.said = said
        self.name = name
        self.by_lower_case = {column.lower(): column for column in reversed(first)}

    def layout(self) -> Layout:
        """Every decision, in the order in which one depends on another."""
        chosen, rejected = self.find("chosen"), self.find("rejected")
        if chosen is None or rejected is None:
            chosen = rejected = None
        completion, rating = self.rated() if chosen is None else (None, None)
        answer = self.find("answer")
        demonstrations = self.demonstrations(answer, rated=completion)
        asked = self.asked(chosen is not None, bool(answer or demonstrations or completion))
        return Layout(
            **asked,
            answer=answer,
            demonstrations=demonstrations,
            chosen=chosen,
            rejected=rejected,
            completion=completion,
            rating=rating,
            domain=self.find("domain"),
            images=self.find("images"),
            keys=self.candidates("key"),
        )

    def find(self, role: Role) -> str | None:
        """The best candidate, if there is one."""
        return next(iter(self.candidates(role)), None)

    def candidates(self, role: Role) -> tuple[str, ...]:
        """The column that was said; else those whose name is known and that were not said to be another role."""
        if role in self.said:
            column = self.said[role]
            return () if column is None else (column,)
        claimed = {column for other, column in self.said.items() if other != role}
        columns = (name if name in self.first else self.by_lower_case.get(name, name) for name in NAMES[role])
        return tuple(c for c in columns if c not in claimed and lookup(self.first, c) is not None)

    def rated(self) -> tuple[str | None, str | None]:
        """The columns of a completion and its rating, where there are both."""
        completion = self.find("completion")
        numbers = (c for c in self.candidates("rating") if rating_of(lookup(self.first, c), c) is not None)
        rating = self.find("rating") if "rating" in self.said else next(numbers, None)
        if completion is None and self.said.get("rating") is not None:
            raise UserError(
                f"{self.name}: columns.rating is '{rating}', but there is no completion that it rates; "
                f"name it as columns.completion; the columns are {quoted(self.first)}"
            )
        return (completion, rating) if completion is not None and rating is not None else (None, None)

    def demonstrations(self, answer: str | None, *, rated: str | None) -> str | None:
        """The column of completions worth imitating; one that has ratings is not."""
        if "demonstrations" in self.said:
            return self.said["demonstrations"]
        if self.said.get("completion") is not None and rated is None:
            return self.said["completion"]
        named = [column for column in self.candidates("demonstrations") if column != rated]
        solution = self.by_lower_case.get("solution")
        if not named and answer is not None and solution not in (None, answer, *self.said.values()):
            return solution
        if not named and answer is not None and _shows_working(lookup(self.first, answer)):
            return answer
        return named[0] if named else None

    def asked(self, is_preference: bool, is_answered: bool) -> dict[str, str | None]:
        """The columns of the prompt, by field of `Layout`."""
        order: list[Role] = ["prompt", "messages"] if is_preference else ["messages", "prompt", "text"]
        for role in sorted(order, key=lambda role: self.said.get(role) is None):
            column = self.find(role)
            if column is None:
                continue
            if role == "text" and is_answered and "text" not in self.said:
                return {"prompt": column}
            if role == "prompt" and column.lower() == "instruction" and "prompt" not in self.said:
                more = self.by_lower_case.get("input")
                return {"prompt": column, "context": None if more in self.said.values() else more}
            return {role: column}
        if is_preference:
            return {}
        known = ", ".join((*NAMES["prompt"], *NAMES["messages"], *NAMES["text"]))
        raise UserError(
            f"{self.name}: no column is known to hold the prompt; the columns are {quoted(self.first)}; known are "
            f"{known}, or chosen with rejected; to use another: tasks.columns.prompt=NAME"
        )


def _shows_working(answer: Any) -> bool:
    """Whether an answer is written as in GSM8K: the working, then ``#### 42`` on the last line."""
    return isinstance(answer, str) and "\n#### " in answer
