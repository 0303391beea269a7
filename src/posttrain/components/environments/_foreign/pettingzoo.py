"""PettingZoo: games by their module, ``classic.tictactoe_v3``; the model is one player, by default the first.

The opponents draw from the legal actions by the rollout's seed, or `user` plays them; ``arguments.player`` is the
number of the model's. Rewards are those of its agent, between two of its turns. An illegal action changes nothing: it
never reaches the game, where it would lose at once.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from posttrain.components.environments._foreign import Adapter, Seen, finite, first_number, viewed
from posttrain.components.environments._foreign.opponents import Opponents, unmasked


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of a module."""
    user, place = arguments.pop("user", None), int(arguments.pop("player", 0))
    module = importlib.import_module(f"pettingzoo.{name}")
    return PettingZoo(module.env(**arguments), view, user, place)


class PettingZoo(Adapter):
    """One game."""

    def __init__(self, environment: Any, view: str, user: str | None = None, place: int = 0) -> None:
        self._game, self._view, self._place = environment, viewed(view, unmasked), place
        self._others = Opponents(user)

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, and play until it is the model's turn."""
        self._game.reset(seed=seed)
        self._own = self._game.possible_agents[self._place]
        self._given = 0.0
        self.reseed(seed)
        return self._next()

    def reseed(self, seed: int) -> None:
        """Draw the opponents' actions by another seed."""
        self._others.random.seed(seed)

    def step(self, action: str) -> Seen:
        """Perform a legal action, and play until the model's next turn."""
        number, legal = first_number(action), self._legal()
        if number is None or (number not in legal if legal is not None else not self._space().contains(number)):
            return Seen(text="This is no legal action.", valid=False, legal=_texts(legal))
        self._game.step(number)
        return self._next()

    def reply(self, text: str) -> Seen:
        """Perform what another player wrote."""
        self._game.step(self._others.read(text, {action: str(action) for action in self._legal() or ()}))
        return self._next()

    def close(self) -> None:
        """Close it."""
        self._game.close()

    def _next(self) -> Seen:
        seen = Seen(terminated=True)
        while agents := self._game.agents:
            observation, given, terminated, truncated, _ = self._game.last()
            over = bool(terminated or truncated)
            if self._game.agent_selection == self._own:
                seen = Seen(text=self._view(observation), reward=finite(given))
                seen.terminated, seen.truncated = bool(terminated), bool(truncated)
                seen.legal = None if over else _texts(self._legal())
                if not all(self._game.terminations[name] or self._game.truncations[name] for name in agents):
                    return seen
            else:
                self._given += finite(given)
            if over:
                self._game.step(None)
                continue
            names = {action: str(action) for action in self._legal() or ()}
            move = self._others.move(self._view(observation), names) if names else self._space().sample()
            if isinstance(move, list):
                return Seen(request=move)
            self._game.step(move)
        seen.other = self._given if len(self._game.possible_agents) == 2 else None
        return seen

    def _space(self) -> Any:
        return self._game.action_space(self._game.agent_selection)

    def _legal(self) -> list[int] | None:
        observation, *_, info = self._game.last()
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        mask = info.get("action_mask") if mask is None else mask
        if mask is not None:
            return [int(i) for i in np.flatnonzero(mask)]
        return list(range(int(self._space().n))) if hasattr(self._space(), "n") else None


def _texts(legal: list[int] | None) -> list[str] | None:
    return None if legal is None else [str(action) for action in legal]
