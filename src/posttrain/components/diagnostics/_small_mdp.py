"""Small Markov decision processes as tables, solved exactly: S states, A actions, gamma a discount below 1.

A terminal state has no reward, and stays where it is. Actions are optimal where their value is within `TIE` of the
largest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from posttrain.errors import UserError
from posttrain.errors.foreign import read_json

Bools = NDArray[np.bool_]
Reals = NDArray[np.float64]
TIE: Final = 1e-7
MOST_STATES: Final = 400


@dataclass(frozen=True, kw_only=True)
class MDP:
    """A process with known transitions and rewards."""

    move_SAS: Reals
    """Probability of the next state."""
    reward_SA: Reals
    start_S: Reals
    """Probability of the first state."""
    terminal_S: Bools
    gamma: float
    horizon: int = 100
    """Actions after which an episode of a learner is cut."""

    def q_SA(self, reward_SA: Reals | None = None) -> Reals:
        """Values of the best actions, by policy iteration; of this reward, or of the process's own."""
        reward = self.reward_SA if reward_SA is None else reward_SA
        policy_S = np.zeros(len(reward), int)
        while True:
            q = self.q_of(np.eye(reward.shape[1])[policy_S], reward)
            best = q.max(1)
            better = best > q[np.arange(len(q)), policy_S] + TIE * max(1.0, float(np.abs(q).max()))
            if not better.any():
                return q
            policy_S = np.where(better, q.argmax(1), policy_S)

    def q_of(self, policy_SA: Reals, reward_SA: Reals) -> Reals:
        """Values of actions under a policy."""
        moves = np.einsum("sa,sat->st", policy_SA, self._going())
        value_S = np.linalg.solve(np.eye(len(moves)) - self.gamma * moves, (policy_SA * reward_SA).sum(1))
        return np.asarray(reward_SA + self.gamma * self._going() @ value_S)

    def occupancy_S(self, policy_SA: Reals) -> Reals:
        """Discounted visits of each state, times 1 - gamma; a terminal state is visited once."""
        moves = np.einsum("sa,sat->st", policy_SA, self._going())
        visits = np.linalg.solve(np.eye(len(moves)) - self.gamma * moves.T, self.start_S)
        return np.asarray((1.0 - self.gamma) * visits)

    def value(self, policy_SA: Reals) -> float:
        """Expected discounted return from the start, of the process's own reward."""
        value_S = (policy_SA * self.q_of(policy_SA, self.reward_SA)).sum(1)
        return float(self.start_S @ value_S)

    def best(self) -> float:
        """The largest such return."""
        return float(self.start_S @ self.q_SA().max(1))

    def reachable_S(self) -> Bools:
        """States that some policy reaches from the start, without terminal ones."""
        seen = self.start_S > 0
        while True:
            wider = seen | ((self._going().max(1) > 0) & seen[:, None]).any(0)
            if (wider == seen).all():
                return np.asarray(seen & ~self.terminal_S)
            seen = wider

    def _going(self) -> Reals:
        """[S, A, S] transitions, with none out of a terminal state."""
        return np.asarray(self.move_SAS * ~self.terminal_S[:, None, None])


def optimal_SA(q_SA: Reals) -> Bools:
    """Which actions are optimal by their values."""
    room = TIE * max(1.0, float(np.abs(q_SA).max()))
    return np.asarray(q_SA >= q_SA.max(1, keepdims=True) - room)


def potential_SA(mdp: MDP) -> Reals:
    """Reward with the best potential, the optimal value: R + gamma E V(s') - V(s), the advantage of the action."""
    q_SA = mdp.q_SA()
    return np.asarray((q_SA - q_SA.max(1, keepdims=True)) * ~mdp.terminal_S[:, None])


def chain(left: int = 3, right: int = 12, distractor: float = 0.1) -> MDP:
    """A row of cells: actions left and right, a small reward at the left end, 1 at the right end; both are terminal.

    The start is `left` cells from the one and `right` cells from the other; an episode has 2 (left + right) steps, in
    which a random walk rarely comes to the right end.
    """
    size = left + right + 1
    move = np.zeros((size, 2, size))
    for cell in range(size):
        move[cell, 0, max(cell - 1, 0)] = move[cell, 1, min(cell + 1, size - 1)] = 1.0
    reward = np.zeros((size, 2))
    reward[1, 0], reward[size - 2, 1] = distractor, 1.0
    ends = np.isin(np.arange(size), (0, size - 1))
    return MDP(
        move_SAS=move,
        reward_SA=reward,
        start_S=np.eye(size)[left],
        terminal_S=ends,
        gamma=0.99,
        horizon=2 * (left + right),
    )


def rooms(side: int = 2) -> MDP:
    """Four rooms of `side` by `side` cells with a door between neighbours; the goal is the last corner, reward 10.

    The start is any cell of the first room. Actions are up, down, left and right; one in ten moves is in a random
    direction, and the cells between rooms stop.
    """
    width = 2 * side + 1
    blocked = {(side, x) for x in range(width)} | {(y, side) for y in range(width)}
    doors = {(side, side // 2), (side, width - 1 - side // 2), (side // 2, side), (width - 1 - side // 2, side)}
    cells = [(y, x) for y in range(width) for x in range(width) if (y, x) not in blocked - doors]
    places = {cell: i for i, cell in enumerate(cells)}
    goal, count = len(cells), len(cells) + 1
    move, reward = np.zeros((count, 4, count)), np.zeros((count, 4))
    for (y, x), i in places.items():
        onward = [places.get((y + dy, x + dx), i) for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1))]
        for action in range(4):
            for other, end in enumerate(onward):
                move[i, action, end] += 0.9 * (other == action) + 0.1 / 4
    # Any action in the last corner reaches the goal, so that the reward is of a state and an action.
    corner = places[width - 1, width - 1]
    move[corner], move[corner, :, goal], move[goal, :, goal] = 0.0, 1.0, 1.0
    reward[corner] = 10.0
    start = np.array([float(y < side and x < side) for y, x in cells] + [0.0])
    return MDP(
        move_SAS=move,
        reward_SA=reward,
        start_S=start / start.sum(),
        terminal_S=np.arange(count) == goal,
        gamma=0.95,
        horizon=6 * width,
    )


def read_mdp(path: Path) -> tuple[MDP, Mapping[str, Reals]]:
    """A process from a JSON file, and rewards by name to be compared with its own.

    ``transitions`` [S][A][S], ``reward`` [S][A], ``start`` [S], ``terminal`` a list of states, ``gamma``, ``horizon``
    (100), and ``designs``, an object of [S][A] by name. Raises `UserError` for anything else, with its place.
    """
    read: Any = read_json(path)
    try:
        move, reward = np.array(read["transitions"], float), np.array(read["reward"], float)
        start = np.array(read["start"], float)
        terminal = np.isin(np.arange(len(start)), np.array(read.get("terminal", []), int))
        gamma, horizon = float(read.get("gamma", 0.95)), int(read.get("horizon", 100))
        designs = {str(name): np.array(own, float) for name, own in dict(read.get("designs", {})).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}; {_NEEDED}") from error
    shape = reward.shape
    right = reward.ndim == 2 and move.shape == (*shape, shape[0]) and start.shape == shape[:1]
    right = right and all(own.shape == shape and np.isfinite(own).all() for own in designs.values())
    right = right and 0 < len(start) <= MOST_STATES and bool(np.isfinite(reward).all())
    right = right and bool((move >= 0).all()) and np.allclose(move.sum(2), 1.0) and np.allclose(start.sum(), 1.0)
    if not right or not 0.0 <= gamma < 1.0 or not 1 <= horizon <= 10_000:
        raise UserError(f"{path}: {shape} rewards, {move.shape} transitions, gamma {gamma}; {_NEEDED}")
    own = np.where(terminal[:, None], 0.0, reward)
    made = MDP(move_SAS=move, reward_SA=own, start_S=start, terminal_S=terminal, gamma=gamma, horizon=horizon)
    return made, designs


_NEEDED: Final = (
    f"there must be transitions [S][A][S] and start [S] that sum to 1, reward [S][A], at most {MOST_STATES} states, "
    "terminal (a list of states), gamma below 1, and designs (rewards [S][A] by name)"
)
