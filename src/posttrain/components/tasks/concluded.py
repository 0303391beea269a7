"""Other tasks without the demonstrations that are no whole critique: no conclusion, cut, or a repeat.

Source: One-Shot Critique Fine-Tuning, Wang et al. 2025, arXiv:2506.03295, and its release: critiques that do not end in
the conclusion of the fixed form are dropped, as are those that a teacher refused to write.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Concluded(Tasks):
    """Keeps the demonstrations that end in a conclusion, each once per prompt."""

    tasks: Tasks
    """The source of the critiques."""
    conclusion: str = r"Conclusion: (right|wrong) \[END\]"
    """Regular expression of what a whole critique ends in; space after it is ignored."""

    @field_validator("conclusion")
    @classmethod
    def check_pattern(cls, pattern: str) -> str:
        """Refuse what is no regular expression."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise PydanticCustomError("pattern", "is no regular expression: {why}", {"why": str(error)}) from error
        return pattern

    def load(self) -> Sequence[Task]:
        """The tasks with a whole critique, in their own order. Raises `UserError` if there is none."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and how many tasks are left."""
        return f"{self.tasks.describe()}\n{len(self._loaded):,} of {len(self.tasks.load()):,} end in a conclusion"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        ending = re.compile(rf"(?:{self.conclusion})\s*\Z")
        seen: set[tuple[str, str]] = set()
        kept = []
        for task in self.tasks.load():
            texts = []
            for text in task.demonstrations:
                row = (str(task.prompt), text.strip())
                if ending.search(text) and row not in seen:
                    seen.add(row)
                    texts.append(text)
            if texts:
                kept.append(replace(task, demonstrations=tuple(texts)))
        if not kept:
            raise UserError(
                f"none of the {len(self.tasks.load())} rows ends in a conclusion of the form {self.conclusion}, and "
                "critiques that do not are dropped. Set tasks.conclusion to the form of yours"
            )
        return kept
