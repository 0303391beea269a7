"""TextArena: games by id; the model is player 0, and the other players take a move that is shown as available.

An opponent writes the first bracketed move that the text lists as one, drawn by the rollout's seed, and passes where
none is listed. With `user` a model or a script plays it after the model's first turn, and reads what the game shows it.
TextArena draws from Python's global `random`, which only this episode uses in its process.
"""

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite
from posttrain.components.environments._foreign.users import written_by


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of an id."""
    import textarena

    players, user = int(arguments.pop("players", 0)), arguments.pop("user", None)
    return TextArena(textarena.make(name, **arguments), players, user)


class TextArena(Adapter):
    """One game."""

    def __init__(self, game: Any, players: int, user: str | None) -> None:
        self._game, self._over = game, False
        self._user = written_by(user) if user else None
        self._players = players or _players(game)
        self._random = Random(0)
        self._value, self._shown, self._new = 0.0, "", ""

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, and play until it is the model's turn."""
        self._random, self._shown = Random(seed), ""
        self._game.reset(num_players=self._players, seed=seed)
        return self._next()

    def reseed(self, seed: int) -> None:
        """Draw the opponents' moves by another seed."""
        self._random = Random(seed)

    def step(self, action: str) -> Seen:
        """Send the whole text of the turn to the game, which finds its move."""
        return self.reply(action)

    def reply(self, text: str) -> Seen:
        """Send a text, and play until it is the turn of the model, or of a model in another role."""
        self._over, _ = self._game.step(action=text)
        return self._next(self._user)

    def value(self) -> float:
        """The game's reward of player 0, after its end."""
        return self._value

    def example(self) -> str | None:
        """One of the moves that the newest text of the game quotes, or else that all of it does."""
        for text in (self._new, self._shown):
            if found := re.findall(r"'(\[[^\]\n]{1,80}\])'", text):
                return str(self._random.choice(found))
        return None

    def _next(self, user: Callable[[list[dict[str, str]]], str | None] | None = None) -> Seen:
        while not self._over:
            player, text = self._game.get_observation()
            if player == 0:
                self._new = str(text).removeprefix(self._shown)  # the text of a game grows, and is shown once
                self._shown = str(text)
                return Seen(text=self._new)
            read = [{"role": "user", "content": str(text)}]
            move = user(read) if user is not None else self._reply(str(text))
            if move is None:
                return Seen(request=read)
            self._over, _ = self._game.step(action=move)
        rewards, _ = self._game.close()
        own, other = (finite((rewards or {}).get(player) or 0.0) for player in range(2))
        self._value = own
        return Seen(terminated=True, other=other if self._players == 2 else None)

    def _reply(self, text: str) -> str:
        moves = re.findall(r"'(\[[^\]\n]{1,20}\])'|^\W*(\[[^\]\n]{1,20}\])", text, re.MULTILINE)
        found = [quoted or plain for quoted, plain in moves]
        return self._random.choice(found) if found else "[pass]"


def _players(game: Any) -> int:
    """The fewest players of a game: one where it is for one."""
    inner = game
    while hasattr(inner, "env"):
        inner = inner.env
    if hasattr(inner, "min_num_players"):
        return int(inner.min_num_players)
    import inspect

    return 1 if "SinglePlayer" in inspect.getsource(type(inner)) else 2
