"""Rewards that a teacher designs for a known process, by linear programs: EXPRD and its adaptive form.

The teacher's policy takes the first optimal action of each state. A design keeps it: with d the smallest gap in value
between that action and one that is not optimal, in this state and under the original reward,

    Q(s, best) - Q(s, a) >= d / (1 + 1e-5)   for each a that is not optimal,   >= 0 for its equals

in values of the designed reward under that policy. So it is optimal there too, and nothing is that was not before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from posttrain.components.diagnostics._small_mdp import MDP, Reals, optimal_SA
from posttrain.errors import UserError

HORIZONS: Final = (1, 4, 8, 16, 32)
SLACK: Final = 1e-5


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """What both programs need of a process: R stands for the S x A numbers of a reward, one after another."""

    mdp: MDP
    largest: float
    """Bound of a reward's absolute value."""
    rows: Sequence[tuple[int, int, int]]
    """State, best action and another one, for each state that can be reached."""
    gap_G: Reals
    """Smallest difference of values that a row must have."""
    worse_G: np.ndarray
    """Whether the other action is not optimal."""

    def difference_GR(self, steps: int | None = None) -> Reals:
        """[rows, R] what Q(s, best) - Q(s, a) is of a reward: of the first `steps` + 1 rewards, or of all."""
        mdp, best_S = self.mdp, _best_S(self.mdp)
        states, actions = mdp.reward_SA.shape
        going = mdp.move_SAS * ~mdp.terminal_S[:, None, None]
        along = going[np.arange(states), best_S]
        if steps is None:
            later = np.linalg.inv(np.eye(states) - mdp.gamma * along)
        else:
            later, term = np.zeros((states, states)), np.eye(states)
            for _ in range(steps):
                later, term = later + term, mdp.gamma * term @ along
        after = mdp.gamma * going @ later
        value = np.zeros((states, actions, states, actions))
        value[:, :, np.arange(states), best_S] = after
        value += np.eye(states * actions).reshape(states, actions, states, actions)
        found = [(value[s, best] - value[s, a]).ravel() for s, best, a in self.rows]
        return np.array(found).reshape(len(self.rows), states * actions)


def teacher_of(mdp: MDP, largest: float) -> Teacher:
    """The teacher of a process. Raises `UserError` where its rewards are above the bound."""
    if (most := float(np.abs(mdp.reward_SA).max())) > largest:
        raise UserError(f"largest is {largest:g}, and the process has a reward of {most:g}; raise largest")
    q_SA, best_S = mdp.q_SA(), _best_S(mdp)
    equal_SA = optimal_SA(q_SA)
    rows, gaps, worse = [], [], []
    for s in np.flatnonzero(mdp.reachable_S()):
        others = q_SA[s][~equal_SA[s]]
        smallest = float(q_SA[s].max() - others.max()) if len(others) else 0.0
        for a in range(q_SA.shape[1]):
            if a != best_S[s]:
                rows.append((int(s), int(best_S[s]), a))
                worse.append(not equal_SA[s, a])
                gaps.append(0.0 if equal_SA[s, a] else smallest / (1.0 + SLACK))
    return Teacher(mdp=mdp, largest=largest, rows=rows, gap_G=np.array(gaps), worse_G=np.array(worse, bool))


def informativeness(teacher: Teacher, reward_SA: Reals) -> float:
    """I(R): minus the mean, over horizons and states, of max(0, max over a of d - gap of the first H + 1 rewards)."""
    places = _states(teacher)
    if not places:
        return 0.0
    lost = []
    for steps in HORIZONS:
        short_G = np.maximum(0.0, teacher.gap_G - teacher.difference_GR(steps) @ reward_SA.ravel())
        lost += [max((short_G[i] for i in own if teacher.worse_G[i]), default=0.0) for own in places]
    return -float(np.mean(lost))


def exprd(teacher: Teacher, states: int, sparsity: float) -> tuple[Reals, list[int]]:
    """The most informative reward that is not 0 in at most `states` states, and these; states are added greedily.

    Those with an original reward come first, with which there is always a solution.
    """
    chosen = [int(s) for s in np.flatnonzero((teacher.mdp.reward_SA != 0).any(1))]
    if len(chosen) > states:
        raise UserError(f"states is {states}, and {len(chosen)} states have a reward already; raise states")
    program = _Program(teacher, sparsity)
    value, reward = program.solve(chosen)
    while len(chosen) < states:
        others = [int(s) for s in np.flatnonzero(teacher.mdp.reachable_S()) if s not in chosen]
        found = [(*program.solve([*chosen, s]), s) for s in others]
        best = max(found, key=lambda one: one[0], default=None)
        if best is None or best[0] <= value + 1e-9:
            break
        value, reward = best[0], best[1]
        chosen.append(best[2])
    return reward, chosen


def adapted(teacher: Teacher, policy_SA: Reals) -> Reals:
    """The reward on which the learner's next step of a policy gradient raises the teacher's advantage the most.

    Maximises the sum over s and a of mu_T(s) mu_L(s, a) pi(a | s) (A(s, a) - mean A) (R(s, a) - mean R), with means
    under the learner's policy pi, visits mu of teacher and learner, and A the advantage under the original reward.
    """
    mdp, actions = teacher.mdp, teacher.mdp.reward_SA.shape[1]
    q_SA = mdp.q_SA()
    advantage = q_SA - q_SA.max(1, keepdims=True)
    centred = advantage - (policy_SA * advantage).sum(1, keepdims=True)
    taught = mdp.occupancy_S(np.eye(actions)[_best_S(mdp)])[:, None]
    seen = mdp.occupancy_S(policy_SA)[:, None] * policy_SA
    weight = taught * seen * policy_SA * centred
    slope = (weight - policy_SA * weight.sum(1, keepdims=True)) * ~mdp.terminal_S[:, None]
    scale = max(float(np.abs(slope).max()), 1e-300)
    bounds = [(-teacher.largest, teacher.largest) if free else (0.0, 0.0) for free in _free(mdp)]
    found = _minimised(-slope.ravel() / scale, -teacher.difference_GR(), -teacher.gap_G, bounds)
    return found.reshape(slope.shape)


class _Program:
    """EXPRD's program for chosen states: rewards, their absolute values, what each horizon and state is short of."""

    def __init__(self, teacher: Teacher, sparsity: float) -> None:
        self._teacher, self._sparsity = teacher, sparsity
        self._keep_GR = teacher.difference_GR()
        self._short_HGR = [teacher.difference_GR(steps) for steps in HORIZONS]
        self._places = _states(teacher)

    def solve(self, chosen: Sequence[int]) -> tuple[float, Reals]:
        """The objective and the reward."""
        teacher = self._teacher
        states, actions = teacher.mdp.reward_SA.shape
        columns = [s * actions + a for s in chosen for a in range(actions)]
        n, own = len(columns), [i for i, at in enumerate(self._places) for _ in at]
        rows = [i for at in self._places for i in at]
        worse = [(i, place) for i, place in zip(rows, own, strict=True) if teacher.worse_G[i]]
        count = len(HORIZONS) * len(self._places)
        cost = np.concatenate([np.zeros(n), np.full(n, self._sparsity), np.full(count, 1.0 / max(count, 1))])
        keep = np.hstack([-self._keep_GR[:, columns], np.zeros((len(self._keep_GR), n + count))])
        blocks, limits = [keep], [-teacher.gap_G]
        for h, short_GR in enumerate(self._short_HGR):
            block = np.zeros((len(worse), 2 * n + count))
            for j, (i, place) in enumerate(worse):
                block[j, :n] = -short_GR[i, columns]
                block[j, 2 * n + h * len(self._places) + place] = -1.0
            blocks.append(block)
            limits.append(-teacher.gap_G[[i for i, _ in worse]])
        for sign in (1.0, -1.0):
            blocks.append(np.hstack([sign * np.eye(n), -np.eye(n), np.zeros((n, count))]))
            limits.append(np.zeros(n))
        bounds = [(-teacher.largest, teacher.largest)] * n + [(0.0, None)] * (n + count)
        found = _minimised(cost, np.vstack(blocks), np.concatenate(limits), bounds)
        reward = np.zeros(states * actions)
        reward[columns] = found[:n]
        return -float(cost @ found), reward.reshape(states, actions)


def _minimised(cost: Reals, above: Reals, limit: Reals, bounds: Sequence[Any]) -> Reals:
    """The x with the smallest cost and above x <= limit. Raises `UserError` where SciPy is missing."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise UserError(
            "designs by a linear program need the library SciPy; pip install 'posttrain[designs]', or leave out exprd "
            "and adaptive"
        ) from None
    found = linprog(cost, A_ub=above if len(above) else None, b_ub=limit if len(above) else None, bounds=bounds)
    # The original reward satisfies every constraint, and rewards are bounded, so that there is a solution.
    assert found.status == 0, found.message
    return np.asarray(found.x, float)


def _best_S(mdp: MDP) -> np.ndarray:
    """The first optimal action of each state."""
    return np.asarray(optimal_SA(mdp.q_SA()).argmax(1))


def _free(mdp: MDP) -> np.ndarray:
    """[R] whether a reward may be other than 0."""
    return np.repeat(~mdp.terminal_S, mdp.reward_SA.shape[1])


def _states(teacher: Teacher) -> list[list[int]]:
    """Places of the rows of each state."""
    found: dict[int, list[int]] = {}
    for place, (state, _, _) in enumerate(teacher.rows):
        found.setdefault(state, []).append(place)
    return list(found.values())
