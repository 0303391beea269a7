"""Best responses to players who draw, in small games of OpenSpiel: what such players can be exploited by."""

from collections.abc import Mapping
from functools import cache
from typing import Final

LARGEST: Final = 1e6
"""Most histories, counted as if all actions were always legal, up to which a game is small."""


@cache
def best_response(name: str) -> tuple[Mapping[str, int], float]:
    """Actions of player 0 by information state against players who draw, and their value; none in a large game."""
    import pyspiel

    game = pyspiel.load_game(name)
    kind, size = game.get_type(), float(game.num_distinct_actions()) ** min(game.max_game_length(), 100)
    sequential = kind.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL
    if size > LARGEST or not sequential or not kind.provides_information_state_string:
        return {}, float("nan")
    table = dict(pyspiel.UniformRandomPolicy(game).policy_table())  # a policy would not outlive this line
    found = pyspiel.TabularBestResponse(game, 0, table)
    return found.get_best_response_actions(), float(found.value(""))
