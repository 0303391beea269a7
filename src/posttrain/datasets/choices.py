"""Questions with choices: shows the choices below the question, and makes the answer the label of one.

Choices are a list of texts (labelled A, B, C, ...), a mapping of such labels, or one with lists ``text`` and ``label``.
The answer of a row may be a label, the number of a choice from 0, or the text of one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, TypeGuard

from posttrain.datasets.values import as_text, shorten
from posttrain.types import Message

REQUEST = "Answer with the label of one choice."
"""What follows the choices in a prompt."""


@dataclass(frozen=True)
class Choices:
    """The labels of choices, and their texts."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]

    def below(self, prompt: str | tuple[Message, ...]) -> str | tuple[Message, ...]:
        """The prompt with the choices after it, or after the last message of the user; unchanged if it has them."""
        if isinstance(prompt, str):
            return prompt if self._are_in(prompt) else f"{prompt.rstrip()}\n\n{self._listed()}"
        if any(self._are_in(message["content"]) for message in prompt):
            return prompt
        last = max((i for i, m in enumerate(prompt) if m["role"] == "user"), default=len(prompt) - 1)
        content = f"{prompt[last]['content'].rstrip()}\n\n{self._listed()}"
        changed: Message = {**prompt[last], "content": content}
        return (*prompt[:last], changed, *prompt[last + 1 :])

    def label_of(self, answer: Any) -> str:
        """The label of an answer. Raises `ValueError` for an answer that is none of the choices, or several."""
        if isinstance(answer, list):
            if len(answer) != 1:
                raise ValueError(
                    f"holds {len(answer)} right choices, and exactly one can be rewarded; leave the row out, or read "
                    "the choices yourself with tasks.columns.choices=null"
                )
            answer = answer[0]
        text = as_text(answer).strip()
        by_label = {label.lower(): label for label in self.labels}
        if text in self.texts and text.lower() not in by_label:
            return self.labels[self.texts.index(text)]
        if not isinstance(answer, str) and text not in self.texts and text.isdigit() and int(text) < len(self.labels):
            return self.labels[int(text)]
        if text.lower() not in by_label:
            raise ValueError(f"is {shorten(text, 60)}, which is none of the choices {', '.join(self.labels)}")
        return by_label[text.lower()]

    def _listed(self) -> str:
        lines = [f"{label}) {text}" for label, text in zip(self.labels, self.texts, strict=True)]
        return "\n".join([*lines, "", REQUEST])

    def _are_in(self, prompt: str) -> bool:
        """Whether a prompt shows every choice after its label."""
        return all(
            re.search(rf"(?<!\w){re.escape(label)}(?:\s?[).:\]]\s*|\s){re.escape(text)}", prompt)
            for label, text in zip(self.labels, self.texts, strict=True)
        )


def read_choices(value: Any) -> Choices | None:
    """The choices in a column's value; None for a value that holds none."""
    if isinstance(value, Mapping) and value.keys() == set(ascii_uppercase[: len(value)]):
        value = {"label": sorted(value), "text": [value[label] for label in sorted(value)]}
    given, texts = (value.get("label"), value.get("text")) if isinstance(value, Mapping) else (None, value)
    if not _plain(texts):
        return None
    labels = _letters(len(texts)) if given is None else given
    if not _plain(labels) or len(labels) != len(texts) or len(set(map(as_text, labels))) < len(labels):
        return None
    return Choices(tuple(as_text(label).strip() for label in labels), tuple(as_text(text).strip() for text in texts))


def _letters(count: int) -> list[str]:
    """A, B, C, ...; numbers from 1 where the alphabet is too short."""
    return list(ascii_uppercase[:count]) if count <= len(ascii_uppercase) else [str(i + 1) for i in range(count)]


def _plain(values: Any) -> TypeGuard[Sequence[str | int | float]]:
    """Whether a value is a list of at least two texts or numbers."""
    several = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 1
    return several and all(isinstance(value, str | int | float) for value in values)
