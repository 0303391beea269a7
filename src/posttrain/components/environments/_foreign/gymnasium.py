"""Gymnasium (Towers et al. 2024, arXiv:2407.17032): observations by their space, or drawn where it draws in text.

``nle:NetHackScore-v0`` and ``minihack:MiniHack-Room-5x5-v0`` are ids of other packages (NLE, arXiv:2006.13760).

An action of a discrete space is a number, the first one of the turn; one of a box is as many numbers as it has.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite, viewed, written
from posttrain.components.environments._foreign.spaces import listed, read, without_colors


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of an id."""
    import gymnasium

    if view == "text" and "ansi" in _modes(name, arguments):
        arguments.setdefault("render_mode", "ansi")
    return Gymnasium(gymnasium.make(name, **arguments), view)


class Gymnasium(Adapter):
    """One episode."""

    def __init__(self, environment: Any, view: str) -> None:
        self._environment = environment
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
        found = read(self._environment.action_space, action)
        if found is None:
            return Seen(text="This is no action.", valid=False)
        observation, reward, terminated, truncated, info = self._environment.step(found)
        seen = self._seen(observation, info)
        seen.legal = None if terminated or truncated else seen.legal
        seen.reward, seen.terminated, seen.truncated = finite(reward), bool(terminated), bool(truncated)
        return seen

    def close(self) -> None:
        """Close it."""
        self._environment.close()

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> Seen:
        text = without_colors(written(self._environment.render())) if self._draws else self._view(observation)
        return Seen(text=text, legal=listed(self._environment.action_space, info.get("action_mask")))


def _modes(name: str, arguments: Mapping[str, Any]) -> list[str]:
    import gymnasium

    environment = gymnasium.make(name, **arguments)
    try:
        return list(environment.metadata.get("render_modes") or [])
    finally:
        environment.close()
