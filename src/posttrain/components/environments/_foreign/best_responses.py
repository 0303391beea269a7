"""Best responses to players who draw, in small games of OpenSpiel: what such players can be exploited by."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

LARGEST: Final = 1e6
"""Most histories, counted as if all actions were always legal, up to which a game is small."""


def is_small(game: Any) -> bool:
    """Whether a game in turns has few histories."""
    import pyspiel

    kind, size = game.get_type(), float(game.num_distinct_actions()) ** min(game.max_game_length(), 100)
    sequential = kind.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL
    return size <= LARGEST and sequential and bool(kind.provides_information_state_string)


@cache
def best_response(name: str, player: int = 0) -> tuple[Mapping[str, int], float]:
    """Actions of a player by information state against players who draw, and their value; none in a large game."""
    import pyspiel

    game = pyspiel.load_game(name)
    if not is_small(game):
        return {}, float("nan")
    table = dict(pyspiel.UniformRandomPolicy(game).policy_table())  # a policy would not outlive this line
    found = pyspiel.TabularBestResponse(game, player, table)
    return found.get_best_response_actions(), float(found.value(""))
