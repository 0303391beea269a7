"""OpenSpiel: games by name; the model is one player, and the others draw from what is legal, or `user` plays them.

An action is its number or its text in the game's own words (``x(1,1)``). ``arguments`` are those of the game and
``player``, the model's number, else 0. In small games the solver is the best response to players who draw.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite
from posttrain.components.environments._foreign.best_responses import best_response
from posttrain.components.environments._foreign.opponents import Opponents, named
from posttrain.statistics.exploitability import observed


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of a name."""
    import pyspiel

    user, place = arguments.pop("user", None), int(arguments.pop("player", 0))
    return OpenSpiel(pyspiel.load_game(name, arguments), user, place)


class OpenSpiel(Adapter):
    """One game."""

    def __init__(self, game: Any, user: str | None = None, place: int = 0) -> None:
        self._game, self._own, self._state = game, place, game.new_initial_state()
        self._others, self._given, self._asked = Opponents(user), 0.0, place
        self._moves: dict[int, int] = {}

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, and play until it is the model's turn."""
        self.reseed(seed)
        self._state, self._given, self._moves = self._game.new_initial_state(), 0.0, {}
        return self._next()

    def reseed(self, seed: int) -> None:
        """Draw chance and opponents by another seed."""
        self._others.random.seed(seed)

    def step(self, action: str) -> Seen:
        """Perform a legal action; anything else changes nothing."""
        names = self._names(self._own)
        if (found := named(action, names)) is None:
            return Seen(text="This is no legal action.", valid=False, legal=list(names.values()))
        self._moves[self._own] = found
        return self._next()

    def reply(self, text: str) -> Seen:
        """Perform what another player wrote."""
        self._moves[self._asked] = self._others.read(text, self._names(self._asked))
        return self._next()

    def solution(self) -> str | None:
        """The best response, in a small game."""
        best = best_response(str(self._game), self._own)[0]
        return self._names(self._own)[best[self._state.information_state_string(self._own)]] if best else None

    def snapshot(self) -> Any:
        """Actions so far, and the state of the draws."""
        return {"history": self._state.history(), "random": self._others.state(), "given": self._given}

    def restore(self, state: Any) -> None:
        """Play the actions again."""
        self._state, self._given, self._moves = self._game.new_initial_state(), float(state["given"]), {}
        for action in state["history"]:
            self._state.apply_action(action)
        self._others.restore(state["random"])

    def _next(self) -> Seen:
        state = self._state
        while not state.is_terminal():
            if state.is_chance_node():
                actions, weights = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(self._others.random.choices(actions, weights)[0])
                continue
            acting = range(self._game.num_players()) if state.is_simultaneous_node() else [state.current_player()]
            missing = [player for player in acting if player not in self._moves]
            if self._own in missing:
                break
            if not missing:
                moves, self._moves = [self._moves[player] for player in acting], {}
                state.apply_actions(moves) if state.is_simultaneous_node() else state.apply_action(*moves)
                continue
            self._asked = missing[0]
            move = self._others.move(observed(state, self._asked), self._names(self._asked))
            if not isinstance(move, int):
                return Seen(request=move)
            self._moves[self._asked] = move
        total = finite(state.returns()[self._own])
        reward, self._given = total - self._given, total
        if state.is_terminal():
            other = finite(state.returns()[1 - self._own]) if self._game.num_players() == 2 else None
            return Seen(text=str(state), reward=reward, terminated=True, other=other)
        return Seen(text=observed(state, self._own), reward=reward, legal=[*self._names(self._own).values()])

    def _names(self, player: int) -> dict[int, str]:
        return {a: self._state.action_to_string(player, a) for a in self._state.legal_actions(player)}
