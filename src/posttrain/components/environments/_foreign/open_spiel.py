"""OpenSpiel: games by name; the model is player 0, chance and the other players draw from what is legal.

An action is its number or its text in the game's own words (``x(1,1)``). ``arguments`` are those of the game. The model
reads what player 0 may observe. In small games the solver is the best response to players who draw, so its mean reward
is what they can be exploited by.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite
from posttrain.components.environments._foreign.best_responses import best_response


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of a name."""
    import pyspiel

    return OpenSpiel(pyspiel.load_game(name, arguments))


class OpenSpiel(Adapter):
    """One game."""

    def __init__(self, game: Any) -> None:
        self._game, self._state = game, None
        self._random, self._given = Random(0), 0.0

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, and play until it is the model's turn."""
        self._random, self._given = Random(seed), 0.0
        self._state = self._game.new_initial_state()
        return self._next()

    def reseed(self, seed: int) -> None:
        """Draw chance and opponents by another seed."""
        self._random = Random(seed)

    def step(self, action: str) -> Seen:
        """Perform a legal action; anything else changes nothing."""
        state: Any = self._state
        names = self._names()
        wanted = action.strip().lower()
        found = next((a for a, name in names.items() if wanted in (str(a), name.lower())), None)
        if found is None:
            return Seen(text="This is no legal action.", valid=False, legal=list(names.values()))
        if state.is_simultaneous_node():
            others = [self._random.choice(state.legal_actions(p)) for p in range(1, self._game.num_players())]
            state.apply_actions([found, *others])
        else:
            state.apply_action(found)
        return self._next()

    def solution(self) -> str | None:
        """The best response, in a small game."""
        state: Any = self._state
        return self._names().get(best_response(str(self._game))[0].get(state.information_state_string(0), -1))

    def snapshot(self) -> Any:
        """Actions so far, and the state of the draws."""
        state: Any = self._state
        return {"history": state.history(), "random": self._random.getstate(), "given": self._given}

    def restore(self, state: Any) -> None:
        """Play the actions again."""
        position = self._game.new_initial_state()
        for action in state["history"]:
            position.apply_action(action)
        self._state, self._given = position, float(state["given"])
        version, numbers, gauss = state["random"]
        self._random.setstate((version, tuple(numbers), gauss))

    def _next(self) -> Seen:
        state: Any = self._state
        while not state.is_terminal() and not state.is_simultaneous_node() and state.current_player() != 0:
            if state.is_chance_node():
                actions, weights = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(self._random.choices(actions, weights)[0])
            else:
                state.apply_action(self._random.choice(state.legal_actions()))
        total = finite(state.returns()[0])
        reward, self._given = total - self._given, total
        if state.is_terminal():
            return Seen(text=str(state), reward=reward, terminated=True)
        return Seen(text=self._observed(), reward=reward, legal=list(self._names().values()))

    def _observed(self) -> str:
        state: Any = self._state
        kind = self._game.get_type()
        if kind.provides_observation_string:
            return str(state.observation_string(0))
        return str(state.information_state_string(0) if kind.provides_information_state_string else state)

    def _names(self) -> dict[int, str]:
        state: Any = self._state
        return {a: state.action_to_string(0, a) for a in state.legal_actions(0)}
