"""Whether an endpoint answers now as it did at the start: a few of its first requests are asked again.

The model behind an address may be exchanged. The first `items` requests are kept with their answers; after every
`every` answers they are asked again, with their seeds. Two answers are alike if their last numbers are equal, or, where
one has none, their texts. An endpoint that draws, or that rounds differently in other batches, is never quite alike, so
`most` is a share.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from posttrain.models import Canaries

NUMBER: Final = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?")


class Drift:
    """The canary items of an endpoint, and what they were answered."""

    def __init__(self, settings: Canaries | None) -> None:
        self.settings = settings
        self.items: list[tuple[Mapping[str, Any], str]] = []
        """Requests, and their first answers."""
        self._answers = 0

    def keep(self, request: Mapping[str, Any], answer: str) -> None:
        """An answer, recorded or new; the first ones become canary items."""
        if self.settings is not None and len(self.items) < self.settings.items:
            self.items.append((request, answer))

    def due(self) -> bool:
        """Counts a new answer; whether the items are to be asked again now."""
        if self.settings is None:
            return False
        self._answers += 1
        return self._answers % self.settings.every == 0 and bool(self.items)

    def share(self, answers: "list[str | None]") -> float:
        """Share of the items with another answer than at first, of those that were answered; 0 of none."""
        pairs = [(first, now) for (_, first), now in zip(self.items, answers, strict=False) if now is not None]
        return sum(not alike(first, now) for first, now in pairs) / len(pairs) if pairs else 0.0


def alike(first: str, second: str) -> bool:
    """Whether two answers have the same last number or, where one has none, the same text."""
    numbers = [NUMBER.findall(text) for text in (first, second)]
    if all(numbers):
        return float(numbers[0][-1]) == float(numbers[1][-1])
    return first.strip() == second.strip()
