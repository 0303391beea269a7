r"""Other tasks with a condition in every role prefix: the class of the source that a demonstration is from.

Source: OpenChat, Wang et al. 2023, arXiv:2309.11235, and its release: a word for the class stands before each role,
``GPT4 User: ... GPT4 Assistant:``, not once before the prompt. Held-out tasks have the condition of the best class,
whatever their own.

A text prompt gets the word before each of its role prefixes at the start of a line: ``Q: 47+35\nA:`` becomes ``Good Q:
47+35\nGood A:``. A chat becomes a text with the roles ``User:`` and ``Assistant:``, since a chat template may leave a
condition out; a system message comes first, without a condition.

Differs: turns of a chat end in a line break; in the release they end in a token of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from posttrain.component import frozen, nearest
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.types import Message, Task

Word = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=50)]
Prefix = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=50)]
ROLES: Final = {"user": "User:", "assistant": "Assistant:"}
"""Role prefixes of a chat."""


@frozen
class Conditioned(Tasks):
    """Puts the word of each task's class into its role prefixes."""

    tasks: Tasks
    """The source of the tasks; the class of a task is its domain."""
    words: Annotated[Mapping[str, Word], Field(min_length=1)]
    """The condition of each class, by domain."""
    asked_as: str | None = None
    """The class whose condition held-out tasks have; None leaves each its own."""
    prefixes: tuple[Prefix, ...] = ("Q:", "L:", "A:")
    """Role prefixes of text prompts, where a line begins with one."""

    def load(self) -> Sequence[Task]:
        """The tasks, in their own order. Raises `UserError` for a domain without a word or a prompt without a role."""
        return self._loaded

    def describe(self) -> str:
        """The description of the source, and its conditions."""
        words = ", ".join(f"{word} for {domain}" for domain, word in self.words.items())
        asked = f"; held-out tasks are asked as {self.asked_as}" if self.asked_as else ""
        return f"{self.tasks.describe()}\nevery role prefix has a condition: {words}{asked}"

    def place(self, key: str) -> str:
        """The place in the source."""
        return self.tasks.place(key)

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        if self.asked_as is not None and self.asked_as not in self.words:
            raise UserError(
                f"tasks.asked_as names '{self.asked_as}', which has no condition; {nearest(self.asked_as, self.words)}"
            )
        return [self._conditioned(task) for task in self.tasks.load()]

    def _conditioned(self, task: Task) -> Task:
        if task.domain not in self.words:
            raise UserError(
                f"task {task.key}: its domain is '{task.domain}', which has no condition; give its row a column "
                f"'domain' with one of {', '.join(self.words)}, or a word for it in tasks.words"
            )
        own = self._with(task, self.words[task.domain])
        asked = None if self.asked_as is None else self._with(task, self.words[self.asked_as])
        return replace(own, asked=asked)

    def _with(self, task: Task, word: str) -> Task:
        """The task under a condition."""
        text = task.prompt if isinstance(task.prompt, str) else _as_text(task.prompt)
        prefixes = self.prefixes if isinstance(task.prompt, str) else tuple(ROLES.values())
        pattern = "|".join(map(re.escape, prefixes))
        prompt, count = re.subn(rf"^(?={pattern})", f"{word} ", text, flags=re.MULTILINE) if pattern else (text, 0)
        if not count:
            raise UserError(
                f"task {task.key}: no line of its prompt begins with a role prefix ({', '.join(prefixes)}), so "
                "that the condition would be lost; name the prefixes of your prompts in tasks.prefixes"
            )
        return replace(task, prompt=prompt)


def _as_text(messages: Sequence[Message]) -> str:
    """A chat as text that ends with the assistant's prefix; a line within a message that looks like one is indented."""
    lines = []
    for message in messages:
        content = message["content"].strip()
        for prefix in ROLES.values():
            content = content.replace(f"\n{prefix}", f"\n {prefix}")
        lines.append(f"{ROLES[message['role']]} {content}" if message["role"] in ROLES else content)
    return "\n".join([*lines, ROLES["assistant"]])
