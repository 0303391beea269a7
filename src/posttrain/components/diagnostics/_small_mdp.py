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

    def _going(self) -> Reals:
        """[S, A, S] transitions, with none out of a terminal state."""
        return np.asarray(self.move_SAS * ~self.terminal_S[:, None, None])


def optimal_SA(q_SA: Reals) -> Bools:
    """Which actions are optimal by their values."""
    room = TIE * max(1.0, float(np.abs(q_SA).max()))
    return np.asarray(q_SA >= q_SA.max(1, keepdims=True) - room)


def read_mdp(path: Path) -> tuple[MDP, Mapping[str, Reals]]:
    """A process from a JSON file, and rewards by name to be compared with its own.

    ``transitions`` [S][A][S], ``reward`` [S][A], ``start`` [S], ``terminal`` a list of states, ``gamma``
    (0.95), and ``designs``, an object of [S][A] by name. Raises `UserError` for anything else, with its place.
    """
    read: Any = read_json(path)
    try:
        move, reward = np.array(read["transitions"], float), np.array(read["reward"], float)
        start = np.array(read["start"], float)
        terminal = np.isin(np.arange(len(start)), np.array(read.get("terminal", []), int))
        gamma = float(read.get("gamma", 0.95))
        designs = {str(name): np.array(own, float) for name, own in dict(read.get("designs", {})).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}; {_NEEDED}") from error
    shape = reward.shape
    right = reward.ndim == 2 and move.shape == (*shape, shape[0]) and start.shape == shape[:1]
    right = right and all(own.shape == shape and np.isfinite(own).all() for own in designs.values())
    right = right and 0 < len(start) <= MOST_STATES and bool(np.isfinite(reward).all())
    right = right and bool((move >= 0).all()) and np.allclose(move.sum(2), 1.0) and np.allclose(start.sum(), 1.0)
    if not right or not 0.0 <= gamma < 1.0:
        raise UserError(f"{path}: {shape} rewards, {move.shape} transitions, gamma {gamma}; {_NEEDED}")
    own = np.where(terminal[:, None], 0.0, reward)
    made = MDP(move_SAS=move, reward_SA=own, start_S=start, terminal_S=terminal, gamma=gamma)
    return made, designs


_NEEDED: Final = (
    f"there must be transitions [S][A][S] and start [S] that sum to 1, reward [S][A], at most {MOST_STATES} states, "
    "terminal (a list of states), gamma below 1, and designs (rewards [S][A] by name)"
)
