"""The role of each column of a data set: detected by its name, or set by the user.

The table of names is `NAMES`; docs/data.md shows it to users. A name is matched exactly first, then case-insensitively;
one with a dot is a nested value (``reward_model.ground_truth``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from posttrain.component import nearest
from posttrain.datasets.choices import read_choices
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
    "choices",
    "key",
]
"""The roles of columns."""

NAMES: Mapping[Role, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "problem", "query", "instruction", "input"),
    "messages": ("messages", "conversations"),
    "text": ("text",),
    "answer": (
        "answer",
        "ground_truth",
        "reward_model.ground_truth",
        "target",
        "gold",
        "solution",
        "reference",
        "reference_answer",
        "ideal",
        "answerKey",
    ),
    "demonstrations": ("demonstrations", "demonstration", "completion", "response", "output"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "completion": ("completion", "response", "output"),
    "rating": ("label", "rating", "reward", "score"),
    "domain": ("domain", "category", "subject", "data_source", "source_dataset", "metadata.source_dataset"),
    "images": ("images", "image"),
    "choices": ("choices", "options"),
    "key": ("id", "key", "task_id", "unique_id"),
}
"""Recognized column names, in order of preference."""
LAST_PROMPTS: Final = ("issue", "statement", "source", "reference")
"""Columns that are the prompt where none of the above is there: of patches, theorems, translations, functions and
kernels."""
BESIDE_SOURCE: Final = frozenset({"reference", "inputs", "function", "line"})
"""Columns of which one must be beside a ``source`` of one line, which else may be the origin of a row."""
BESIDE_REFERENCE: Final = frozenset({"inputs"})
"""Columns beside which ``reference`` is a program and no answer, unless there is a ``source``."""


_STEP = "\u043a\u0438"
"""Mark after each step in data of the form of Math-Shepherd."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The column of each role; None where the data has none."""

    prompt: str | None = None
    """Text, or messages. None for preference pairs that include the prompt, for plain text, and where an environment
    shows what is asked."""
    context: str | None = None
    """The ``input`` of an ``instruction``: a second part of the prompt."""
    messages: str | None = None
    """Like `prompt`, but a last message by the assistant is a demonstration."""
    text: str | None = None
    """Plain text to train on as is."""
    answer: str | None = None
    demonstrations: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    completion: str | None = None
    rating: str | None = None
    domain: str | None = None
    images: str | None = None
    """One image, or a list of them."""
    choices: str | None = None
    """Choices that are shown below the prompt; the answer is the label of one."""
    keys: tuple[str, ...] = ()
    """Columns that may identify the rows, if their values differ."""

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Columns that every row must have a value in."""
        columns = (self.prompt, self.messages, self.text, self.chosen, self.rejected, self.completion, self.rating)
        return tuple(column for column in columns if column is not None)

    @cached_property
    def of_prompt(self) -> frozenset[str]:
        """Columns of the prompt, which are not fields of the task; those of `LAST_PROMPTS` are both."""
        columns = (self.prompt, self.context, self.messages, self.text, self.images)
        return frozenset(column for column in columns if column and column.lower() not in LAST_PROMPTS)


def lookup(values: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or None; a dotted name reaches into a value that is a mapping."""
    if column in values:
        return values[column]
    head, _, rest = column.partition(".")
    inner = values.get(head)
    return lookup(inner, rest) if rest and isinstance(inner, Mapping) else None


def rating_of(value: Any, column: str) -> float | None:
    """A rating as a number; None for an invalid one. A ``label`` must be true or false, or 1 or 0."""
    if isinstance(value, str):
        named = {"true": 1.0, "false": 0.0}.get(value.strip().lower())
        try:
            value = float(value) if named is None else named
        except ValueError:
            return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return None if column.lower() == "label" and value not in (0, 1) else float(value)


def detect(rows: Sequence[Row], named_columns: Mapping[Role, str | None], name: str) -> Layout:
    """Find the column of each role; `named_columns` take precedence. Raises `UserError` if no prompt is found."""
    first: dict[str, Any] = {}
    for row in rows:
        for column, value in row.values.items():
            if value is not None and column not in first:
                first[column] = value
    for role, named in named_columns.items():
        if named is not None and all(lookup(row.values, named) is None for row in rows):
            raise UserError(
                f"{name}: columns.{role} names '{named}', which no row has a value in; {nearest(named, first)}; "
                f"the columns are {quoted(first)}"
            )
    if not {"completion", "rating", "demonstrations"} & named_columns.keys():
        _refuse_steps(first, rows[0].place)
    return _Detection(first, named_columns, name).layout()


def _refuse_steps(first: Mapping[str, Any], place: str) -> None:
    """Raise `UserError` for rows with a label for each step of a solution."""
    label, text = first.get("label"), first.get("input")
    columns = "'completions' and 'labels'" if _lists(first.get("completions"), first.get("labels")) else ""
    if isinstance(label, Mapping) and "steps" in label:
        columns = "'label.steps'"
    elif isinstance(label, str) and isinstance(text, str) and _STEP in text and label[:20] == text[:20]:
        columns = "'input' and 'label'"
    if columns:
        raise UserError(
            f"{place}: {columns} label each step of a solution (process supervision), and rows are read as whole "
            "solutions. To train a value model on steps, write one row per step: 'prompt', 'completion' (the solution "
            "up to the end of that step), 'rating' (1 or 0), and 'complete' (false before the last step). To train on "
            "the prompts only, write tasks.columns.completion=null"
        )


def _lists(*values: Any) -> bool:
    return all(isinstance(value, list) for value in values)


def quoted(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(f"'{name}'" for name in names) or "none"


class _Detection:
    """The decisions about one data set: `first` holds the first value of every column that has one."""

    def __init__(self, first: dict[str, Any], named_columns: Mapping[Role, str | None], name: str) -> None:
        self.first = first
        self.named_columns = named_columns
        self.name = name
        self.by_lower_case = {column.lower(): column for column in reversed(first)}

    def layout(self) -> Layout:
        """All decisions, in the order of their dependencies."""
        chosen, rejected = self.find("chosen"), self.find("rejected")
        if chosen is None or rejected is None:
            chosen = rejected = None
        completion, rating = self.rated() if chosen is None else (None, None)
        answer = self.find("answer")
        demonstrations = self.demonstrations(answer, rated=completion)
        prompt = self.prompt_columns(chosen is not None, bool(answer or demonstrations or completion))
        return Layout(
            **prompt,
            answer=answer,
            demonstrations=demonstrations,
            chosen=chosen,
            rejected=rejected,
            completion=completion,
            rating=rating,
            domain=self.find("domain"),
            images=self.find("images"),
            choices=self.choices(),
            keys=self.candidates("key"),
        )

    def find(self, role: Role) -> str | None:
        """The best candidate, if any."""
        return next(iter(self.candidates(role)), None)

    def candidates(self, role: Role) -> tuple[str, ...]:
        """The column that the user set; else those of a known name that were not set for another role."""
        if role in self.named_columns:
            column = self.named_columns[role]
            return () if column is None else (column,)
        claimed = {column for other, column in self.named_columns.items() if other != role}
        if role == "answer" and self._has_program():
            claimed.add(self.by_lower_case["reference"])
        columns = (name if name in self.first else self.by_lower_case.get(name, name) for name in NAMES[role])
        return tuple(c for c in columns if c not in claimed and lookup(self.first, c) is not None)

    def choices(self) -> str | None:
        """The column of choices; a column of another kind with such a name is none."""
        column = self.find("choices")
        if column is None or read_choices(lookup(self.first, column)) is not None:
            return column
        if "choices" in self.named_columns:
            raise UserError(f"{self.name}: columns.choices names '{column}', which holds no list of at least two texts")
        return None

    def rated(self) -> tuple[str | None, str | None]:
        """The columns of a completion and its rating, where there are both."""
        completion = self.find("completion")
        numbers = (c for c in self.candidates("rating") if rating_of(lookup(self.first, c), c) is not None)
        rating = self.find("rating") if "rating" in self.named_columns else next(numbers, None)
        if completion is None and self.named_columns.get("rating") is not None:
            raise UserError(
                f"{self.name}: columns.rating is '{rating}', but there is no completion that it rates; "
                f"name it as columns.completion; the columns are {quoted(self.first)}"
            )
        return (completion, rating) if completion is not None and rating is not None else (None, None)

    def demonstrations(self, answer: str | None, *, rated: str | None) -> str | None:
        """The column of demonstrations; completions with ratings are none."""
        if "demonstrations" in self.named_columns:
            return self.named_columns["demonstrations"]
        if self.named_columns.get("completion") is not None and rated is None:
            return self.named_columns["completion"]
        named = [column for column in self.candidates("demonstrations") if column != rated]
        solution = self.by_lower_case.get("solution")
        if not named and answer is not None and solution not in (None, answer, *self.named_columns.values()):
            return solution
        if not named and answer is not None and _has_worked_solution(lookup(self.first, answer)):
            return answer
        return named[0] if named else None

    def prompt_columns(self, is_preference: bool, is_answered: bool) -> dict[str, str | None]:
        """The columns of the prompt, by field of `Layout`."""
        order: list[Role] = ["prompt", "messages"] if is_preference else ["messages", "prompt", "text"]
        for role in sorted(order, key=lambda role: self.named_columns.get(role) is None):
            column = self.find(role)
            if column is None:
                continue
            if role == "text" and is_answered and "text" not in self.named_columns:
                return {"prompt": column}
            if role == "prompt" and column.lower() == "instruction" and "prompt" not in self.named_columns:
                more = self.by_lower_case.get("input")
                return {"prompt": column, "context": None if more in self.named_columns.values() else more}
            return {role: column}
        if is_preference or "prompt" in self.named_columns:
            return {}
        for column in (self.by_lower_case.get(name) for name in LAST_PROMPTS):
            if column is not None and self._is_prompt(column):
                return {"prompt": column}
        known = ", ".join((*NAMES["prompt"], *NAMES["messages"], *NAMES["text"]))
        raise UserError(
            f"{self.name}: no column is known to hold the prompt; the columns are {quoted(self.first)}; known are "
            f"{known}, or chosen with rejected; to use another: tasks.columns.prompt=NAME; where an environment shows "
            "what is asked, rows need none: tasks.columns.prompt=null"
        )

    def _is_prompt(self, column: str) -> bool:
        """Whether one of `LAST_PROMPTS` is the prompt, by what is beside it."""
        if column.lower() == "reference":
            return self._has_program()
        several = "\n" in str(self.first[column]).strip()
        return column.lower() != "source" or several or bool(BESIDE_SOURCE & self.by_lower_case.keys())

    def _has_program(self) -> bool:
        """Whether the column ``reference`` is a program, for which kernels are written."""
        names = self.by_lower_case.keys()
        return "reference" in names and "source" not in names and bool(BESIDE_REFERENCE & names)


def _has_worked_solution(answer: Any) -> bool:
    """Whether an answer is in the format of GSM8K: a worked solution, then ``#### 42`` on the last line."""
    return isinstance(answer, str) and "\n#### " in answer
