"""Kuhn poker with OpenSpiel's interface: cards 0, 1, 2, one each; pass or bet; the larger card wins."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

ENDS = {"pp": 1, "bb": 2, "pbb": 2, "bp": 0, "pbp": 0}
"""Stakes at the end by bets; 0 where a player gave up."""


class Kuhn:
    """A state, which has its own `child` states and changes never."""

    def __init__(self, cards: tuple[int, ...] = (), bets: str = "") -> None:
        self.cards, self.bets = cards, bets

    def new_initial_state(self) -> "Kuhn":
        return Kuhn()

    def num_players(self) -> int:
        return 2

    def get_game(self) -> Any:
        return SimpleNamespace(get_type=lambda: SimpleNamespace(provides_observation_string=True))

    def is_chance_node(self) -> bool:
        return not self.cards

    def is_simultaneous_node(self) -> bool:
        return False

    def is_terminal(self) -> bool:
        return self.bets in ENDS

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return [(deal, 1 / 6) for deal in range(6)]

    def current_player(self) -> int:
        return len(self.bets) % 2

    def legal_actions(self) -> list[int]:
        return [0, 1]

    def action_to_string(self, player: int, action: int) -> str:
        return ("Pass", "Bet")[action]

    def child(self, action: int) -> "Kuhn":
        if not self.cards:
            return Kuhn(list(permutations(range(3), 2))[action])
        return Kuhn(self.cards, self.bets + "pb"[action])

    def information_state_string(self, player: int) -> str:
        return f"{self.cards[player]}{self.bets}"

    def observation_string(self, player: int) -> str:
        return f"card {self.cards[player]}, {self.bets}"

    def returns(self) -> list[float]:
        stake = ENDS[self.bets]
        first = self.cards[0] > self.cards[1] if stake else self.bets == "bp"
        won = float(stake or 1)
        return [won, -won] if first else [-won, won]
