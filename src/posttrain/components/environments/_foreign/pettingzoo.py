"""PettingZoo: games by their module, ``classic.tictactoe_v3``; the model is the first player, the others act at random.

The opponents draw from the legal actions by the rollout's seed. Rewards are those of the model's agent, between two of
its turns. An illegal action changes nothing: it never reaches the game, where it would lose at once.
"""

import importlib
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from posttrain.components.environments._foreign import Adapter, Seen, finite, first_number, viewed, written


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of a module."""
    module = importlib.import_module(f"pettingzoo.{name}")
    return PettingZoo(module.env(**arguments), view)


class PettingZoo(Adapter):
    """One game."""

    def __init__(self, environment: Any, view: str) -> None:
        self._game, self._view = environment, viewed(view, _flat)
        self._random = Random(0)

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, and play until it is the model's turn."""
        self._game.reset(seed=seed)
        self._own = self._game.possible_agents[0]
        self._random = Random(seed)
        return self._next()

    def reseed(self, seed: int) -> None:
        """Draw the opponents' actions by another seed."""
        self._random = Random(seed)

    def step(self, action: str) -> Seen:
        """Perform a legal action, and play until the model's next turn."""
        number, legal = first_number(action), self._legal()
        if number is None or (number not in legal if legal is not None else not self._space().contains(number)):
            return Seen(text="This is no legal action.", valid=False, legal=_texts(legal))
        self._game.step(number)
        return self._next()

    def close(self) -> None:
        """Close it."""
        self._game.close()

    def _next(self) -> Seen:
        reward = 0.0
        while self._game.agents:
            observation, given, terminated, truncated, _ = self._game.last()
            if self._game.agent_selection == self._own:
                reward += finite(given)
                over = bool(terminated or truncated)
                legal = None if over else _texts(self._legal())
                text = self._view(observation)
                if over:
                    return Seen(text=text, reward=reward, terminated=bool(terminated), truncated=bool(truncated))
                return Seen(text=text, reward=reward, legal=legal)
            self._game.step(None if terminated or truncated else self._drawn())
        return Seen(reward=reward, terminated=True)

    def _space(self) -> Any:
        return self._game.action_space(self._game.agent_selection)

    def _legal(self) -> list[int] | None:
        observation, *_, info = self._game.last()
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        mask = info.get("action_mask") if mask is None else mask
        if mask is not None:
            return [int(i) for i in np.flatnonzero(mask)]
        return list(range(int(self._space().n))) if hasattr(self._space(), "n") else None

    def _drawn(self) -> int:
        legal = self._legal()
        return self._random.choice(legal) if legal else int(self._space().sample())


def _flat(observation: Any) -> str:
    """The observation without its mask."""
    return written(observation.get("observation", observation) if isinstance(observation, Mapping) else observation)


def _texts(legal: list[int] | None) -> list[str] | None:
    return None if legal is None else [str(action) for action in legal]
