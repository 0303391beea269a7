"""A public good with a joint penalty: payoffs, backward induction, and tables that learn.

N agents act one after the other and see who came before. With c the efforts in [0, 1], F the quality of the result:

    R_i = - cost c_i^2 + synergy c_i mean(c_j, j < i) + share F / N - penalty [F < benchmark]

The first agent has no synergy. F of a table is the mean effort.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from posttrain.component import frozen

Reals = NDArray[np.float64]
Amount = Annotated[float, Field(ge=0.0, le=1e6)]
TIE = 1e-12


@frozen
class Payoff:
    """What each agent gets. The defaults are those of the released checkpoint, and a cost of 0.5."""

    cost: Amount = 0.5
    """k: cost of full effort."""
    synergy: Amount = 1.5
    """gamma: return for effort after others' effort."""
    share: Amount = 1.8
    """rho: of the quality of the result, in equal parts."""
    penalty: Amount = 1.5
    """P: for all, where the quality is below the benchmark."""
    benchmark: Annotated[float, Field(ge=0.0, le=1.0)] = 0.85
    """B: quality from which nothing is taken; reaching it exactly is enough."""

    def of(self, effort_N: Sequence[float], quality: float | None = None) -> Reals:
        """[N] payoffs of efforts in the order of acting. Without a quality, it is the mean effort."""
        c_N = np.asarray(effort_N, np.float64)
        final = float(c_N.mean()) if quality is None else quality
        before_N = np.concatenate([[0.0], np.cumsum(c_N)[:-1] / np.arange(1, len(c_N))])
        joint = self.share * final / len(c_N) - self.penalty * (final < self.benchmark - TIE)
        payoff_N: Reals = -self.cost * c_N**2 + self.synergy * c_N * before_N + joint
        return payoff_N


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The outcome of backward induction."""

    effort: tuple[float, ...]
    payoff: tuple[float, ...]
    unique: bool
    """Whether no agent on the path had two best efforts; the smallest is taken."""


def equilibrium(payoff: Payoff, levels: Sequence[float], agents: int) -> Solution:
    """The subgame-perfect outcome, where all efforts are seen by those after it."""

    def best(before: tuple[float, ...]) -> tuple[tuple[float, ...], Reals, bool]:
        if len(before) == agents:
            return before, payoff.of(before), True
        ends = [best((*before, level)) for level in sorted(levels)]
        own = [float(end[1][len(before)]) for end in ends]
        path, values, unique = ends[int(np.argmax(np.round(own, 12)))]
        return path, values, unique and sum(value >= max(own) - TIE for value in own) == 1

    path, values, unique = best(())
    return Solution(effort=path, payoff=tuple(values.tolist()), unique=unique)


def learnt(
    payoff: Payoff,
    levels: Sequence[float],
    agents: int,
    *,
    seed: int,
    rollouts: int = 4000,
    rate: float = 0.1,
    full: bool = True,
) -> Reals:
    """[rollouts / 10, N] efforts in the last tenth of rollouts of tables, which learn by REINFORCE from their payoff.

    An agent's state is what it sees: all efforts before it, or with `full` false the last one. The baseline is a
    running mean of the state.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    seen = [list(itertools.product(range(len(levels)), repeat=i if full else min(i, 1))) for i in range(agents)]
    logits = [{state: np.zeros(len(levels)) for state in own} for own in seen]
    baselines = [dict.fromkeys(own, 0.0) for own in seen]
    kept = []
    for rollout in range(rollouts):
        chosen: list[int] = []
        moves: list[tuple[tuple[int, ...], Reals]] = []
        for agent in range(agents):
            state = tuple(chosen) if full else tuple(chosen[-1:])
            powers = np.exp(logits[agent][state] - logits[agent][state].max())
            p_K = powers / powers.sum()
            action = min(int(np.searchsorted(p_K.cumsum(), rng.random())), len(levels) - 1)
            chosen.append(action)
            moves.append((state, np.eye(len(levels))[action] - p_K))
        effort_N = [levels[action] for action in chosen]
        for agent, (own, (state, move_K)) in enumerate(zip(payoff.of(effort_N), moves, strict=True)):
            logits[agent][state] += rate * (own - baselines[agent][state]) * move_K
            baselines[agent][state] += 0.05 * (own - baselines[agent][state])
        if rollout >= rollouts - rollouts // 10:
            kept.append(effort_N)
    return np.array(kept)
