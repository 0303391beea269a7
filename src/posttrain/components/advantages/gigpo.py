"""GiGPO: credit for the whole rollout, and for each turn among all turns taken in the same state.

Source: Feng et al. 2025 (GiGPO), arXiv:2505.10978, sections 4.1 to 4.3. With r_t the reward of turn t and
G_t = r_t + gamma G_{t+1} the return from there, every token of turn t gets

    A = N(sum of r over the rollout, among the rollouts of its group)
      + omega N(G_t, among the turns of its group that were taken in the same state)

where N subtracts the mean, and divides by the standard deviation if `scale` is set. States are distinguished by
`Segment.state_key`, inside a group only. A rollout that returns to a state is several members of that state's group.

Differs: the released code takes mean and std of the first term over the turns of all rollouts, so that a long
rollout counts more: that is ``episodes: turns``. The paper counts every rollout once. A group of one gets 0, where
the released code keeps its return. States are the same when their keys are; the code's optional similarity of texts is
not implemented.
"""

from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, centered, group_std
from posttrain.types import Batch, Credit, FloatArray, IntArray, Trajectory


@frozen
class GiGPO(Advantage):
    """The advantage of the rollout plus `omega` times that of the turn."""

    omega: NonNegativeFloat = 1.0
    """Weight of the turn's advantage; 0 leaves GRPO."""
    gamma: float = Field(default=0.95, ge=0.0, le=1.0)
    """Discount per turn of the returns that turns are compared by, in [0, 1]."""
    scale: Literal["group", "none"] = "none"
    """Whether differences are divided by the standard deviation of those that are compared."""
    episodes: Literal["rollouts", "turns"] = "rollouts"
    """What counts once in the statistics of whole rollouts: each rollout, or each of its turns."""
    epsilon: PositiveFloat = 1e-6
    """Added to the standard deviation, in units of reward."""

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Returns of turns."""
        return "tokens"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare rollouts, and turns in the same state."""
        turns = [_turn_of_token(t) for t in batch.trajectories]
        count_N = np.array([int(turn_T[-1]) + 1 if len(turn_T) else 0 for turn_T in turns], np.int64)
        of_turn = np.repeat(np.arange(len(turns)), count_N)
        returns = [self._returns(r_T, turn_T) for r_T, turn_T in zip(batch.token_rewards, turns, strict=True)]
        states = _states(batch)
        step = self._normal(np.concatenate([np.zeros(0), *returns]), states)
        if self.episodes == "turns":
            whole = self._normal(batch.return_N[of_turn], batch.group_N[of_turn])
        else:
            whole = self._normal(batch.return_N, batch.group_N)[of_turn]
        starts_N = np.cumsum(count_N) - count_N
        advantage = (whole + self.omega * step).astype(np.float32)
        shared = np.bincount(states)[states] > 1 if len(states) else np.zeros(0)
        return state, Credit(
            advantages=tuple(advantage[start + turn_T] for start, turn_T in zip(starts_N, turns, strict=True)),
            metrics={"gigpo/shared_states": float(np.mean(shared)) if len(shared) else 0.0},
        )

    def _returns(self, reward_T: FloatArray, turn_T: IntArray) -> Reals:
        """[turns] discounted return from each turn of one trajectory."""
        returns: Reals = np.bincount(turn_T, weights=reward_T).astype(np.float64)
        for turn in reversed(range(len(returns) - 1)):
            returns[turn] += self.gamma * returns[turn + 1]
        return returns

    def _normal(self, x: Reals, among: IntArray) -> Reals:
        """Each value minus the mean of those it is compared with, divided by their std if `scale` is set."""
        if not len(x):
            return x
        difference = centered(x, among)
        return difference if self.scale == "none" else difference / (group_std(x, among) + self.epsilon)


def _turn_of_token(trajectory: Trajectory) -> IntArray:
    """[T] how many turns of the trajectory with trained tokens came before that of each token."""
    trained = [s for s in trajectory.segments if s.trained and len(s)]
    numbers = {turn: place for place, turn in enumerate(dict.fromkeys(s.turn for s in trained))}
    return np.repeat([numbers[s.turn] for s in trained], [len(s) for s in trained]).astype(np.int64)


def _states(batch: Batch) -> IntArray:
    """[turns of all trajectories] index of the state that each was taken in; without a key, a state of its own."""
    known: dict[tuple[object, ...], int] = {}
    states = []
    for i, (group, trajectory) in enumerate(zip(batch.group_N, batch.trajectories, strict=True)):
        keys: dict[int, str | None] = {}
        for segment in trajectory.segments:
            if segment.trained and len(segment):
                keys.setdefault(segment.turn, segment.state_key)
        for turn, key in keys.items():
            identity = (int(group), key) if key is not None else (int(group), i, turn)
            states.append(known.setdefault(identity, len(known)))
    return np.array(states, np.int64)
