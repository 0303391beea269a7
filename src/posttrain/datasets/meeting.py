"""Two players on a ring who have to stand on one cell, and do not see each other: rules, scripted players, best play.

They act alternately. Each action is a word for the partner, which is a number of a cell, and a step: left, stay or
right. A player has its own cell and the last word of the partner. Both get 1 once they are together, 0 at the
limit of moves. Two players with the same convention (all go to cell 3) always meet.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

STEPS: Final = {"left": -1, "stay": 0, "right": 1}


class State(NamedTuple):
    """A moment of a game."""

    places: tuple[int, int]
    """Cell of each player."""
    heard: tuple[int | None, int | None] = (None, None)
    """Last word of the other player, for each."""
    turn: int = 0
    """Actions so far; player 0 acts in even turns."""
    ring: int = 5
    """Cells."""
    limit: int = 6
    """Actions of both together."""

    @property
    def met(self) -> bool:
        """Whether both stand on one cell."""
        return self.places[0] == self.places[1]

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.met or self.turn >= self.limit

    @property
    def player(self) -> int:
        """Who acts."""
        return self.turn % 2

    @property
    def legal(self) -> tuple[str, ...]:
        """The actions: each word with each step."""
        return tuple(f"{word} {step}" for word in range(self.ring) for step in STEPS)

    def after(self, action: str) -> "State":
        """The state after a legal action."""
        word, step = action.split()
        places, heard = list(self.places), list(self.heard)
        places[self.player] = (places[self.player] + STEPS[step]) % self.ring
        heard[1 - self.player] = int(word)
        return self._replace(places=(places[0], places[1]), heard=(heard[0], heard[1]), turn=self.turn + 1)

    def shown(self) -> str:
        """What the player who acts sees."""
        left = (self.limit - self.turn + 1) // 2
        heard = self.heard[self.player]
        word = "nothing yet" if heard is None else str(heard)
        return (
            f"You stand on cell {self.places[self.player]} of a ring of {self.ring} and do not see your partner. Your "
            f"partner's last word: {word}. You have {left} moves left. Both win on the same cell.\n"
        )


def towards(place: int, goal: int, ring: int) -> str:
    """The step of the shortest way; right where both are equal."""
    away = (goal - place) % ring
    return "stay" if away == 0 else "right" if away <= ring - away else "left"


Scripted = Callable[[State], str]


def scripted(name: str, ring: int) -> Scripted | None:
    """The player of a name: ``cell_K`` goes to cell K and names it; ``follow`` goes to the last word, names its own."""
    if name == "follow":

        def follow(state: State) -> str:
            place, heard = state.places[state.player], state.heard[state.player]
            return f"{place} {'stay' if heard is None else towards(place, heard, state.ring)}"

        return follow
    kind, _, number = name.partition("_")
    if kind != "cell" or not number.isdigit() or int(number) >= ring:
        return None
    goal = int(number)
    return lambda state: f"{goal} {towards(state.places[state.player], goal, state.ring)}"


def starts(ring: int, limit: int) -> list[State]:
    """All first states: two different cells."""
    return [State(places=(a, b), ring=ring, limit=limit) for a in range(ring) for b in range(ring) if a != b]


def best_response(partner: Scripted, player: int, ring: int, limit: int) -> float:
    """Expected return of the best play with a scripted partner, over all first states, from what a player sees."""
    groups: dict[int, list[State]] = defaultdict(list)
    for state in starts(ring, limit):
        groups[state.places[player]].append(state)
    total = sum(_value(own, partner, player) for own in groups.values())
    return total / len(starts(ring, limit))


def _value(states: Sequence[State], partner: Scripted, player: int) -> float:
    """The most that can be won in states that look alike to the player, summed over them."""
    won = sum(state.met for state in states)
    states = [state for state in states if not state.over]
    if not states:
        return float(won)
    first = states[0]
    if first.player != player:
        groups: dict[int | None, list[State]] = defaultdict(list)
        for after in (state.after(partner(state)) for state in states):
            won += after.met
            if not after.over:
                groups[after.heard[player]].append(after)
        return won + sum(_value(own, partner, player) for own in groups.values())
    final = first.turn + 1 == first.limit  # a word that nobody hears is like any other
    actions = [f"0 {step}" for step in STEPS] if final else first.legal
    return won + max(_value([state.after(action) for state in states], partner, player) for action in actions)
