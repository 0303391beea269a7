r"""GEM (Liu et al. 2025, arXiv:2510.01051): games, mathematics and tools by id: ``gem:game:GuessTheNumber-v0``.

The interface is Gymnasium's with texts in place of spaces: the whole text of a turn is sent, and the game finds its
move in it (``\boxed{7}``). What a game requests after each observation (its suffix) is shown below it. GEM draws from
Python's global `random`, which only this episode uses in its process; some games answer after their end, and are not
asked then.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite, viewed, written


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of an id."""
    import gem

    return Gem(gem.make(name, **arguments), view)


class Gem(Adapter):
    """One episode."""

    def __init__(self, environment: Any, view: str) -> None:
        self._environment = environment
        self._view = viewed(view, written)

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start."""
        observation, info = self._environment.reset(seed=seed)
        return Seen(text=self._text(observation, info))

    def step(self, action: str) -> Seen:
        """Send the text of the turn."""
        observation, reward, terminated, truncated, info = self._environment.step(action)
        over = terminated or truncated
        return Seen(
            text=written(self._view(observation)) if over else self._text(observation, info),
            reward=finite(reward),
            terminated=bool(terminated),
            truncated=bool(truncated and not terminated),
        )

    def close(self) -> None:
        """Close it, where it can be."""
        if callable(getattr(self._environment, "close", None)):
            self._environment.close()

    def _text(self, observation: Any, info: Mapping[str, Any]) -> str:
        parts = [written(self._view(observation)).strip("\n"), written(info.get("suffix", "")).strip("\n")]
        return "\n".join(part for part in parts if part)
