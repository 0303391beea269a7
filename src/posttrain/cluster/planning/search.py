"""The best plan: all of them for a small choice, Metropolis for a large one.

Source: ReaLHF (arXiv:2406.14088), released search engine: start from the fastest candidate of each call, propose one
other candidate of one call, accept what is not worse, else with probability exp(-beta d) for an increase of d. A plan
that does not fit is three times as long, so that the walk may pass through it, and is never the answer.

Differs: a seed decides every draw; beta is per cent of the present cost. The released rule, exp(-0.001 d) with d in
tenths of a second, rounded down, so that smaller increases are always accepted, is ``accept="released"``. The number of
proposals is bounded, not the seconds.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from posttrain.cluster.planning.calls import Call, Plan, Transfers, cost
from posttrain.cluster.planning.memory import plan_bytes
from posttrain.errors import UserError

OUT_OF_MEMORY = 3.0
"""Factor of a plan that does not fit."""
RELEASED_BETA, RELEASED_UNIT = 0.001, 0.1
"""Of the released rule; the unit is in seconds."""
Accept = Literal["relative", "released"]
"""Which longer plans are gone to: by their cost in per cent, or by the released rule."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plan that fits."""

    plan: Plan
    seconds: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be placed."""

    calls: Sequence[Call]
    transfers: Transfers | None = None
    capacity: int | None = None
    """Bytes of a device."""
    iterations: int = 5
    barrier: bool = False
    """Whether an iteration begins when the one before has ended."""
    other: float = 0.0
    """Seconds of an iteration in which there is no call."""

    def weighed(self, plan: Plan) -> tuple[float, Found | None]:
        """The cost in the walk, and the plan if it fits."""
        seconds = cost(self.calls, plan, self.transfers, self.iterations, barrier=self.barrier)
        seconds += self.other * self.iterations
        used = plan_bytes(self.calls, plan)
        if self.capacity is not None and used > self.capacity:
            return seconds * OUT_OF_MEMORY, None
        return seconds, Found(plan=dict(plan), seconds=seconds, bytes=used)


def brute_force(problem: Problem, most: int = 1_000_000) -> Found:
    """The best of all plans. Raises `UserError` where there are too many, or none fits."""
    sizes = [range(len(call.candidates)) for call in problem.calls]
    if math.prod(map(len, sizes)) > most:
        raise UserError(f"there are {math.prod(map(len, sizes)):,} plans, more than {most:,}; search by Metropolis")
    names = [call.name for call in problem.calls]
    fitting = [
        found
        for chosen in itertools.product(*sizes)
        if (found := problem.weighed(dict(zip(names, chosen, strict=True)))[1]) is not None
    ]
    return min(fitting or [_none(problem)], key=lambda found: found.seconds)


def accepted(now: float, then: float, rule: Accept, beta: float) -> float:
    """Probability to go from a plan to another one, by their seconds."""
    if then <= now:
        return 1.0
    if rule == "released":
        return math.exp(-RELEASED_BETA * math.floor((then - now) / RELEASED_UNIT))
    return math.exp(-beta * 100.0 * (then - now) / now)


def metropolis(
    problem: Problem,
    *,
    seed: int,
    proposals: int = 2000,
    beta: float = 0.5,
    keep: int = 10,
    accept: Accept = "relative",
) -> list[Found]:
    """The best plans of a walk, the best first. `beta` is per percent that a proposal is longer.

    Raises `UserError` where no plan on the way fits.
    """
    calls = problem.calls
    begun = tuple(min(range(len(call.candidates)), key=lambda i: call.candidates[i].seconds) for call in calls)

    def weighed(plan: tuple[int, ...]) -> tuple[float, Found | None]:
        return problem.weighed({call.name: index for call, index in zip(calls, plan, strict=True)})

    sizes = [len(call.candidates) for call in calls]
    best = walk(sizes, begun, weighed, seed=seed, proposals=proposals, beta=beta, accept=accept)
    return sorted(best.values(), key=lambda item: item.seconds)[:keep] or [_none(problem)]


Chosen = TypeVar("Chosen")


def walk(
    sizes: Sequence[int],
    begun: tuple[int, ...],
    weighed: Callable[[tuple[int, ...]], tuple[float, Chosen | None]],
    *,
    seed: int,
    proposals: int = 2000,
    beta: float = 0.5,
    accept: Accept = "relative",
) -> dict[tuple[int, ...], Chosen]:
    """What the walk came to, by the index of each choice; there are ``sizes[i]`` of the i-th. `weighed` gives the cost
    of a plan in the walk, and what it is if it fits.
    """
    rng, plan = np.random.default_rng(seed), begun
    moves = [(place, i) for place, size in enumerate(sizes) for i in range(size)]
    now, found = weighed(plan)
    best: dict[tuple[int, ...], Chosen] = {}
    known: dict[tuple[int, ...], tuple[float, Chosen | None]] = {}
    for _ in range(proposals + 1):
        if found is not None:
            best[plan] = found
        others = [move for move in moves if plan[move[0]] != move[1]]
        if not others:
            break
        place, index = others[int(rng.integers(len(others)))]
        proposed = (*plan[:place], index, *plan[place + 1 :])
        if proposed not in known:
            known[proposed] = weighed(proposed)
        then, other = known[proposed]
        chance = accepted(now, then, accept, beta)
        if chance == 1.0 or rng.random() < chance:
            plan, now, found = proposed, then, other
    return best


def symmetric(problem: Problem) -> Found:
    """The best plan in which all calls have the same devices and layout, as systems without a search have it.

    Raises `UserError` where there is none.
    """
    options = [{(c.devices, c.layout): i for i, c in enumerate(call.candidates)} for call in problem.calls]
    shared = set(options[0]).intersection(*options[1:])
    found = [
        problem.weighed({call.name: own[key] for call, own in zip(problem.calls, options, strict=True)})[1]
        for key in sorted(shared, key=lambda key: (sorted(key[0]), key[1]))
    ]
    return min([item for item in found if item is not None] or [_none(problem)], key=lambda item: item.seconds)


def _none(problem: Problem) -> Found:
    raise UserError(
        f"no plan fits in {problem.capacity:,} bytes a device" if problem.capacity else "there is no plan at all"
    )
