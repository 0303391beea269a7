"""Grammars of tagged steps: a graph of the kinds of steps, and the path through it that a completion writes.

A completion is a list of steps, each in the tags of its kind: ``<step>47+35=82</step><check>ok</check>...``. The graph
states which kinds may come first and which after each kind; a path ends at a kind that gives the answer. Only space may
stand between steps. What is no path has a fault, a sentence that states why.

`FUNCTIONS` is the graph of Reinforced Functional Token Tuning, Zhang et al. 2025, arXiv:2502.13389, as its release
(github.com/sastpg/RFTT at 948f89ee, mcts_sampling.py) has it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.datasets.templates import fill

Tag = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
Tags = tuple[Tag, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path."""

    kind: str
    text: str
    """What stands between the tags, without space around it."""


@dataclass(frozen=True, slots=True)
class Path:
    """What a completion consists of."""

    steps: tuple[Step, ...]
    """The steps up to the fault, if there is one."""
    fault: str = ""
    """Why it is no path from the question to an answer; empty for one that is."""

    @property
    def answer(self) -> str | None:
        """The text of the last step of a whole path; None for a path with a fault."""
        return None if self.fault else self.steps[-1].text


@frozen
class Grammar:
    """A graph of the kinds of steps."""

    first: Annotated[Tags, Field(min_length=1)] = ("clarify", "analysis", "subquestion", "next_step")
    """Kinds that may come after the question."""
    after: Mapping[Tag, Tags] = Field(
        default={
            "clarify": ("analysis", "subquestion", "next_step", "direct_answer"),
            "analysis": ("subquestion", "next_step", "direct_answer"),
            "subquestion": ("next_step", "direct_answer"),
            "next_step": ("next_step", "direct_answer", "subquestion", "verify", "output"),
            "direct_answer": ("output", "verify"),
            "verify": ("next_step", "refine", "direct_answer", "subquestion", "verify", "output"),
            "refine": ("next_step", "direct_answer", "output", "subquestion", "verify"),
        }
    )
    """By kind, those that may follow it. A kind without an entry ends the path with the answer."""
    depth: Annotated[int, Field(ge=1, le=200)] = 18
    """Most steps of a path."""
    prompts: Mapping[Tag, str] = Field(default_factory=dict)
    """By kind, what a model that does not know the tags is asked, with ``{problem}`` and ``{path}``; then every kind
    has one. Without any, the model writes the tags itself."""

    @model_validator(mode="after")
    def check_graph(self) -> Self:
        """Refuse a graph without an end, and prompts that are missing or name no problem."""
        if not self.ends:
            raise PydanticCustomError(
                "after", "every kind has another one after it, so that no path ends; leave one out"
            )
        for kind in self.prompts:
            if kind not in self.kinds:
                context = {"kind": kind, "hint": nearest(kind, self.kinds)}
                raise PydanticCustomError("prompts", "the grammar has no kind '{kind}'; {hint}", context)
        missing = [kind for kind in self.kinds if self.prompts and kind not in self.prompts]
        if missing:
            context = {"kind": missing[0]}
            raise PydanticCustomError("prompts", "there is no prompt for '{kind}'; give each kind one", context)
        for kind, prompt in self.prompts.items():
            if "{problem}" not in prompt:
                context = {"kind": kind, "place": "{problem}"}
                raise PydanticCustomError("prompts", "the prompt for '{kind}' must name {place}", context)
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds, each once."""
        named = (*self.first, *self.after, *(kind for kinds in self.after.values() for kind in kinds))
        return tuple(dict.fromkeys(named))

    @property
    def ends(self) -> tuple[str, ...]:
        """The kinds that give the answer."""
        return tuple(kind for kind in self.kinds if not self.after.get(kind))

    def allowed(self, kind: str | None) -> tuple[str, ...]:
        """The kinds that may follow one, or the question for None; none after an answer."""
        return self.first if kind is None else tuple(self.after.get(kind, ()))

    def prompt(self, kind: str, problem: str, path: str) -> str:
        """The prompt for a step of a kind."""
        return fill(self.prompts[kind], {"problem": problem, "path": path})

    def read(self, text: str) -> Path:
        """The path that a completion writes."""
        steps: list[Step] = []
        place, kind = 0, None
        marks = list(re.finditer(rf"<(/?)({'|'.join(map(re.escape, self.kinds))})>", text))
        for opening, closing in zip(marks[::2], [*marks[1::2], None], strict=False):
            between = text[place : opening.start()].strip()
            fault = self._fault(opening, closing, between, kind, len(steps))
            if fault or closing is None:
                return Path(tuple(steps), fault)
            kind, place = opening[2], closing.end()
            steps.append(Step(kind, text[opening.end() : closing.start()].strip()))
        rest = text[place:].strip()
        if rest:
            return Path(tuple(steps), f"{_short(rest)} stands outside the tags")
        if kind is None or kind not in self.ends:
            return Path(tuple(steps), f"there is no answer: no {_named(self.ends)}")
        return Path(tuple(steps))

    def _fault(
        self, opening: re.Match[str], closing: re.Match[str] | None, between: str, kind: str | None, steps: int
    ) -> str:
        """What is wrong with the next step; empty if it is a step."""
        if between:
            return f"{_short(between)} stands outside the tags"
        if opening[1]:
            return f"{opening[0]} closes what is not open"
        if opening[2] not in self.allowed(kind):
            before = f"<{kind}>" if kind else "the question"
            return f"{opening[0]} may not follow {before}; allowed: {_named(self.allowed(kind)) or 'nothing'}"
        if steps == self.depth:
            return f"it has more than {self.depth} steps"
        if closing is None:
            return f"{opening[0]} is not closed"
        if not closing[1]:
            return f"{closing[0]} stands inside {opening[0]}"
        return "" if closing[2] == opening[2] else f"{opening[0]} is closed by {closing[0]}"


FUNCTIONS = Grammar()
"""The kinds of steps of the release."""


def _named(kinds: tuple[str, ...]) -> str:
    return ", ".join(f"<{kind}>" for kind in kinds)


def _short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else f"{text[:most]}...")
