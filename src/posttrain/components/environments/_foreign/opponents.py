"""The other players of a game: they draw from what is legal, or a model or a script plays them.

A model or a script reads what its player may observe, and the legal actions. The first of them that it names is its
move, in full or as the whole of its text; where it names none, one is drawn.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from posttrain.components.environments._foreign import written
from posttrain.components.environments._foreign.users import written_by


class Opponents:
    """Who acts for the other players."""

    def __init__(self, user: str | None) -> None:
        """``role:NAME`` is a model that the run samples, ``file.py:function`` a script, None draws."""
        self._write = written_by(user) if user else None
        self.random = Random(0)

    def state(self) -> Any:
        """The state of the draws."""
        return self.random.getstate()

    def restore(self, state: Any) -> None:
        """Draw from a state on, which may have been JSON."""
        version, numbers, gauss = state
        self.random.setstate((version, tuple(numbers), gauss))

    def move(self, observed: str, names: Mapping[int, str]) -> int | list[dict[str, str]]:
        """An action, or what a model is to read; see `read`."""
        if self._write is None:
            return self.random.choice(list(names))
        text = f"{observed}\nActions: {', '.join(names.values())}"
        messages = [{"role": "user", "content": text}]
        written = self._write(messages)
        return messages if written is None else self.read(written, names)

    def read(self, text: str, names: Mapping[int, str]) -> int:
        """The action that a text names."""
        if (whole := named(text, names)) is not None:
            return whole
        places = {action: re.search(rf"(?i)(?<!\w){re.escape(name)}(?!\w)", text) for action, name in names.items()}
        found = [(place.start(), -len(names[action]), action) for action, place in places.items() if place]
        return min(found)[2] if found else self.random.choice(list(names))


def named(text: str, names: Mapping[int, str]) -> int | None:
    """The action whose number or name a text is, whatever the case."""
    whole = text.strip().lower()
    return next((action for action, name in names.items() if whole in (str(action), name.lower())), None)


def unmasked(observation: Any) -> str:
    """An observation without its mask, as text."""
    return written(observation.get("observation", observation) if isinstance(observation, Mapping) else observation)
