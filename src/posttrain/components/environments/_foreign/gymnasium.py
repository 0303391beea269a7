"""Gymnasium (Towers et al. 2024, arXiv:2407.17032): observations by their space, or drawn where it draws in text.

``nle:NetHackScore-v0`` and ``minihack:MiniHack-Room-5x5-v0`` are ids of other packages (NLE, arXiv:2006.13760).

An action of a discrete space is a number, the first one of the turn; one of a box is as many numbers as it has.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from posttrain.components.environments._foreign import Adapter, Seen, finite, first_number, viewed, written

_HIGHLIGHT = re.compile(r"\x1b\[4\dm(.*?)\x1b\[0m", re.DOTALL)
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of an id."""
    import gymnasium

    if view == "text" and "ansi" in _modes(name, arguments):
        arguments.setdefault("render_mode", "ansi")
    return Gymnasium(gymnasium.make(name, **arguments), view)


class Gymnasium(Adapter):
    """One episode."""

    def __init__(self, environment: Any, view: str) -> None:
        self._environment, self._over = environment, False
        self._draws = getattr(environment, "render_mode", None) == "ansi"
        self._nethack = hasattr(environment.unwrapped, "nethack")
        self._view = viewed(view, written)

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start. NetHack does not repeat by the seed of `reset`, but by those of its own generators."""
        if self._nethack:
            self._environment.unwrapped.seed(core=seed, disp=seed, reseed=False)
        observation, info = self._environment.reset(seed=seed)
        return self._seen(observation, info)

    def reseed(self, seed: int) -> None:
        """Give the environment a new generator, where it has the usual one."""
        from gymnasium.utils import seeding

        if self._nethack:
            self._environment.unwrapped.nethack.set_current_seeds(seed, seed)
        if hasattr(self._environment.unwrapped, "_np_random"):
            self._environment.unwrapped.np_random = seeding.np_random(seed)[0]

    def step(self, action: str) -> Seen:
        """Perform the action; one outside of the space changes nothing."""
        if self._over:
            raise RuntimeError("the episode is over")
        read = self._read(action)
        if read is None:
            return Seen(text="This is no action.", valid=False)
        observation, reward, terminated, truncated, info = self._environment.step(read)
        self._over = bool(terminated or truncated)
        seen = self._seen(observation, info)
        seen.legal = None if self._over else seen.legal
        seen.reward, seen.terminated, seen.truncated = finite(reward), bool(terminated), bool(truncated)
        return seen

    def close(self) -> None:
        """Close it."""
        self._environment.close()

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> Seen:
        text = _plain(self._environment.render()) if self._draws else self._view(observation)
        return Seen(text=text, legal=self._legal(info))

    def _legal(self, info: Mapping[str, Any]) -> list[str] | None:
        space = self._environment.action_space
        if not hasattr(space, "n"):
            return None
        mask = info.get("action_mask")
        first = int(getattr(space, "start", 0))
        return [str(first + i) for i in range(int(space.n)) if mask is None or mask[i]]

    def _read(self, text: str) -> Any:
        """The action of a text; None for one that the space does not have."""
        space = self._environment.action_space
        if hasattr(space, "n"):
            number = first_number(text)
            return number if number is not None and space.contains(np.int64(number)) else None
        if getattr(space, "dtype", None) is not None and getattr(space, "shape", None) is not None:
            numbers = [float(part) for part in re.findall(r"-?\d+\.?\d*(?:[eE]-?\d+)?", text)]
            wanted = int(np.prod(space.shape))
            if len(numbers) < wanted:
                return None
            array = np.array(numbers[:wanted], space.dtype).reshape(space.shape)
            return np.clip(array, space.low, space.high) if hasattr(space, "low") else array
        return text


def _modes(name: str, arguments: Mapping[str, Any]) -> list[str]:
    import gymnasium

    environment = gymnasium.make(name, **arguments)
    try:
        return list(environment.metadata.get("render_modes") or [])
    finally:
        environment.close()


def _plain(drawn: Any) -> str:
    """A drawing for terminals without colours and the last action: what is highlighted stands in brackets."""
    text = _COLOR.sub("", _HIGHLIGHT.sub(r"[\1]", written(drawn))).strip("\n")
    return re.sub(r"\A {2}\(\w+\)\n|\n? {2}\(\w+\)\Z", "", text)
