"""A shop behind six calls: the task is to order one item, and three checks score the state at the end.

    login        must come first; every other call fails before it
    list         the items that are sold, with a number each; numbers differ from episode to episode
    add N        puts item N into the cart
    address      names the customer's address; fails while the cart is empty
    order        orders the cart; fails before there is an address
    done         ends the episode

The checks are those of unit tests on the final state: the cart has the item and nothing else, there is an address, the
cart is ordered. The verdict is their share (or 1 for all of them, else 0). The optimum is login, list, add, address,
order, done; the regret is the turns beyond it, where an episode in which a check fails counts as one turn more than
the limit.

Source: the setting of LOOP, arXiv:2502.01600, where agents call APIs of apps with a state of their own (AppWorld), and
the reward is the share of unit tests that pass; calls and checks are ours.
"""

import re
import zlib
from collections.abc import Mapping
from random import Random
from typing import Final, Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.components.environments._extra_turns import extra_turns
from posttrain.types import Task

ITEMS: Final = ("kiwi", "plum", "fig")
SHORTEST: Final = 6
"""Turns of the shortest plan."""


@frozen
class Shop(Environment):
    """One purchase per rollout; the task's key draws the item and the numbers."""

    horizon: PositiveInt = 10
    """Turns after which the episode ends."""
    value: Literal["share", "all"] = "share"
    """The verdict: the share of checks that pass, or 1 if all do and else 0."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A shop in which nothing has been done. Nothing is random."""
        rng = Random(zlib.crc32(f"shop:{task.key}".encode()))
        return Purchase(self, rng.choice(ITEMS), tuple(rng.sample(ITEMS, len(ITEMS))))


class Purchase(Instance):
    """The state of one episode."""

    def __init__(self, rules: Shop, item: str, numbered: tuple[str, ...]) -> None:
        self._rules, self._item, self._numbered = rules, item, numbered
        self._cart: list[str] = []
        self._done: set[str] = set()
        self._turns, self._calls, self._failed = 0, 0, 0

    def begin(self) -> Observation:
        """What to buy."""
        return self._observation(f"Buy a {self._item}.")

    async def step(self, action: str) -> Outcome:
        """Perform a call."""
        self._turns += 1
        over = self._turns == self._rules.horizon
        call = action.strip()
        if call == "done":
            return Outcome(observation=self._observation("Bye."), done=True)
        self._calls += 1
        answer = self._answer(call)
        self._failed += answer is None
        return Outcome(observation=self._observation(answer or "Error."), done=over, valid=answer is not None)

    async def solution(self) -> str:
        """The next call of the shortest plan."""
        for call, done in (("login", "login"), ("list", "list")):
            if done not in self._done:
                return call
        if not self._cart:
            return f"add {self._numbered.index(self._item) + 1}"
        return next((call for call in ("address", "order") if call not in self._done), "done")

    def verdict(self) -> Verdict:
        """The checks of the final state."""
        checks = {
            "cart": self._cart == [self._item],
            "address": "address" in self._done,
            "order": "order" in self._done,
        }
        share, solved = sum(checks.values()) / len(checks), all(checks.values())
        failed = ", ".join(name for name, good in checks.items() if not good)
        value = share if self._rules.value == "share" else float(solved)
        return Verdict(value=value, solved=solved, explanation=f"failed checks: {failed or 'none'}")

    def measures(self) -> Mapping[str, float]:
        """Regret in turns, calls besides ``done``, and those of them that failed."""
        solved, horizon = self.verdict().solved, self._rules.horizon
        regret = extra_turns(self._turns, solved=solved, shortest=SHORTEST, horizon=horizon)
        return {"regret": regret, "calls": float(self._calls), "failed": float(self._failed)}

    def _answer(self, call: str) -> str | None:
        """The answer to a call; None for one that fails."""
        if call == "login":
            self._done.add(call)
            return "Hello."
        number = re.fullmatch(rf"add ([1-{len(ITEMS)}])", call)
        ready = {"list": True, "address": bool(self._cart), "order": "address" in self._done}
        if "login" not in self._done or not (number or ready.get(call, False)):
            return None
        if number:
            self._cart.append(self._numbered[int(number[1]) - 1])
            return "Added."
        self._done.add(call)
        if call == "list":
            return ", ".join(f"{place} {name}" for place, name in enumerate(self._numbered, start=1)) + "."
        return "Noted." if call == "address" else "Ordered."

    def _observation(self, text: str) -> Observation:
        known = " ".join(sorted(self._done))
        number = str(self._numbered.index(self._item) + 1) if "list" in self._done else "?"
        cart = {0: "empty", 1: "right" if self._cart == [self._item] else "wrong"}.get(len(self._cart), "wrong")
        calls = ("login", "list", *(f"add {place + 1}" for place in range(len(ITEMS))), "address", "order", "done")
        return Observation(text=f"\n{text}\n", state_key=f"{known} {number} {cart}", legal=calls)
