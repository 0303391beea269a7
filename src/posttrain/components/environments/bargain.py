"""Bargaining over ten coins with a scripted partner: offers and demands by turns, and a pie that shrinks.

    4       offers the partner four of the ten coins
    deal    accepts what the partner demands

The partner accepts an offer or demands more. The task's key draws its rule, which the first observation names:

    firm        accepts 6, demands 7
    hurried     accepts 7 in the first round and one less in each later one, not under 2, and demands one more
    mirror      demands 8; gives in by as much as the last offer rose, and accepts one less than it demands

The verdict is the share that is kept, times `discount` for each earlier round; 0 without a deal. A best response is
found by search over all that both may do, since the rules are deterministic; the regret is what the verdict misses of
its value.

With `other` the model of another role is the partner, and writes ``deal`` or what it demands; what each gets is its
verdict, and an episode with a deal is solved. A turn that is neither repeats what was offered, or demanded, before.

Source: alternating offers with discounting as in A. Rubinstein, Perfect equilibrium in a bargaining model, Econometrica
50, 1982 (doi:10.2307/1912531); the partners' rules are ours.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Request, Verdict
from posttrain.types import Message, Task

COINS: Final = 10
DEAL: Final = "deal"
PARTNERS: Final = ("firm", "hurried", "mirror")
ACTIONS: Final = (*(str(coins) for coins in range(COINS + 1)), DEAL)


class State(NamedTuple):
    """A moment at which the policy acts."""

    partner: str
    turn: int = 0
    demand: int = COINS
    """Coins that the partner demanded last; all of them at first."""
    offered: int = 0
    """The last offer."""


@frozen
class Bargain(Environment):
    """One negotiation per rollout."""

    horizon: Annotated[int, Field(ge=1, le=20)] = 5
    """Rounds after which there is no deal."""
    discount: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """What a round leaves of the value."""
    other: Annotated[str, Field(min_length=1)] | None = None
    """Role of the model that is the partner; None is a script."""

    @property
    def roles(self) -> frozenset[str]:
        """The partner's, if a model is the partner."""
        return frozenset() if self.other is None else frozenset({self.other})

    def with_other(self, role: str) -> "Bargain":
        """The same with a model as the partner."""
        return replace(self, other=role)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A partner of the task. Nothing is random."""
        if self.other is not None:
            return Between(self, self.other)
        rng = Random(zlib.crc32(f"bargain:{task.key}".encode()))
        return Negotiation(self, rng.choice(PARTNERS))


class Negotiation(Instance):
    """One episode."""

    def __init__(self, rules: Bargain, partner: str) -> None:
        self._rules, self._state = rules, State(partner)
        self._best, _ = best_response(self._state, rules.horizon, rules.discount)
        self._value, self._failed = 0.0, 0

    def begin(self) -> Observation:
        """Which partner it is."""
        return self._observation(f"{self._state.partner} partner")

    async def step(self, action: str) -> Outcome:
        """Make an offer, or accept the demand."""
        move = action.strip()
        valid = move in ACTIONS
        self._failed += not valid
        kept, after = played(self._state, move if valid else str(self._state.offered))
        scale = self._rules.discount**self._state.turn
        self._state = after
        if kept is not None:
            self._value = scale * kept / COINS
            return Outcome(observation=self._observation("agreed"), done=True, valid=valid)
        over = after.turn == self._rules.horizon
        return Outcome(observation=self._observation(f"demands {after.demand}"), done=over, valid=valid)

    async def solution(self) -> str:
        """A best response."""
        return best_response(self._state, self._rules.horizon, self._rules.discount)[1]

    def verdict(self) -> Verdict:
        """The discounted share."""
        solved = self._value >= self._best - 1e-9
        text = f"{self._value:.3f}, a best response has {self._best:.3f}"
        return Verdict(value=self._value, solved=solved, explanation=text)

    def measures(self) -> Mapping[str, float]:
        """What the value misses of a best response's, and turns that are no action."""
        return {"regret": max(self._best - self._value, 0.0), "failed": float(self._failed)}

    def _observation(self, text: str) -> Observation:
        own = self._state
        key = f"{own.partner} {own.turn} {own.demand} {own.offered}"
        return Observation(text=f"\n{text}\n", state_key=key, legal=ACTIONS)


class Between(Instance):
    """One episode of two models."""

    def __init__(self, rules: Bargain, other: str) -> None:
        self._rules, self._other = rules, other
        self._round, self._failed = 0, 0
        self._offer, self._demand = 0, COINS
        self._shares: tuple[float, float] | None = None

    def begin(self) -> Observation:
        """Who begins."""
        return self._observation("the first offer is yours")

    async def step(self, action: str) -> Outcome:
        """Make an offer, or accept the demand."""
        valid, self._offer = self._read(action, self._offer)
        self._failed += not valid
        if action.strip() == DEAL:
            return self._agreed(self._demand)
        text = f"offers {self._offer}"
        return Outcome(valid=valid, request=Request(role=self._other, prompt=(Message(role="user", content=text),)))

    async def reply(self, text: str) -> Outcome:
        """Make a demand, or accept the offer."""
        _, self._demand = self._read(text, self._demand)
        if text.strip() == DEAL:
            return self._agreed(self._offer)
        self._round += 1
        return Outcome(
            observation=self._observation(f"demands {self._demand}"), done=self._round == self._rules.horizon
        )

    def verdict(self) -> Verdict:
        """The discounted share of the first."""
        return self._verdict(0)

    def verdict_of(self, role: str) -> Verdict | None:
        """The discounted share of the partner."""
        return self._verdict(1) if role == self._other else None

    def measures(self) -> Mapping[str, float]:
        """Turns of the first that are no action."""
        return {"failed": float(self._failed)}

    def _read(self, text: str, before: int) -> tuple[bool, int]:
        """Whether a text is an action, and its coins, or else those before."""
        move = text.strip()
        return move in ACTIONS, int(move) if move in ACTIONS and move != DEAL else before

    def _agreed(self, given: int) -> Outcome:
        scale = self._rules.discount**self._round / COINS
        self._shares = (scale * (COINS - given), scale * given)
        return Outcome(observation=self._observation("agreed"), done=True)

    def _verdict(self, place: int) -> Verdict:
        text = "no deal" if self._shares is None else "{:.3f} and {:.3f}".format(*self._shares)
        value = 0.0 if self._shares is None else self._shares[place]
        return Verdict(value=value, solved=self._shares is not None, explanation=text)

    def _observation(self, text: str) -> Observation:
        key = f"{self._round} {self._offer} {self._demand}"
        return Observation(text=f"\n{text}\n", state_key=key, legal=ACTIONS)


def played(state: State, action: str) -> tuple[int | None, State]:
    """The coins that are kept, None without a deal, and the state after an action and the partner's answer."""
    after = state._replace(turn=state.turn + 1)
    if action == DEAL:
        return COINS - state.demand, after
    offer = int(action)
    if offer >= accepted(state, offer):
        return COINS - offer, after
    return None, after._replace(demand=accepted(state, offer) + 1, offered=offer)


def accepted(state: State, offer: int) -> int:
    """The fewest coins that the partner accepts in this round, if it is offered these."""
    if state.partner == "firm":
        return 6
    if state.partner == "hurried":
        return max(7 - state.turn, 2)
    before = 8 if state.turn == 0 else state.demand
    risen = max(offer - state.offered, 0) if state.turn else 0
    return max(before - risen, 1) - 1


@lru_cache(maxsize=100_000)
def best_response(state: State, horizon: int, discount: float) -> tuple[float, str]:
    """The largest value that can be had from a state on, counted from the first round, and an action with it."""
    best = (0.0, ACTIONS[0])
    if state.turn == horizon:
        return best
    for action in ACTIONS:
        kept, after = played(state, action)
        value = discount**state.turn * kept / COINS if kept is not None else 0.0
        if kept is None:
            value, _ = best_response(after, horizon, discount)
        if value > best[0]:
            best = (value, action)
    return best
