"""GAE along the chain of all agents of a rollout: agent 1, agent 2, ..., and agent 1 of the next step.

Source: MARFT, arXiv:2504.16129, and its released code. With r the reward and V the critic's value of the state before
an action, delta = r + gamma V(next action) - V, and A = delta + gamma lam A(next action), where gamma and lambda act at
every hop, also between the agents of one step. An action is a whole turn (APPO), whose tokens all have its A, or a
token (TPPO). Advantages are normalized over the actions of the batch: exact zeros are left out of mean and standard
deviation (of the population, plus 1e-8), but shifted like the others.

Differs: the release also cuts the chain between the agents of the first step after an episode's end; here it is cut
only where a rollout ends (`docs/experiments/agent_chain.py` has both). Where all advantages are zero they stay so, and
where those that are not zero are equal, the standard deviation is that of all, so that it is not 0. With whole turns,
all tokens of a turn have the critic's target of its first one.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals
from posttrain.signals import OLD_VALUE, Signal
from posttrain.types import Batch, Credit, FloatArray, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class ChainGAE(Advantage):
    """Generalized advantages of turns or tokens, over the turns of all agents."""

    needs: ClassVar[frozenset[Signal]] = frozenset({OLD_VALUE})

    gamma: Share = 0.99
    """Discount per action, in [0, 1]."""
    lam: Share = 0.95
    """In [0, 1]: 0 uses the critic's values for all after one action, 1 uses rewards only."""
    level: Literal["turn", "token"] = "turn"
    """What an action is."""
    normalize: bool = True
    """Whether advantages are normalized."""

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Returns with gamma = lam = 1 for tokens; rewards of a turn are its sum otherwise."""
        return "returns" if self.gamma == self.lam == 1.0 and self.level == "token" else "tokens"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Estimate the advantage of every action, and the critic's targets."""
        hops, advantages, values = [], [], []
        for trajectory, reward_T, value_T in zip(
            batch.trajectories, batch.token_rewards, batch.signals[OLD_VALUE], strict=True
        ):
            hop_T = _hops(trajectory) if self.level == "turn" else np.arange(len(reward_T))
            first_H = np.flatnonzero(np.diff(hop_T, prepend=-1))
            reward_H: Reals = np.zeros(len(first_H))
            np.add.at(reward_H, hop_T, reward_T)
            value_H = value_T.astype(np.float64)[first_H]
            hops.append(hop_T)
            values.append(value_H)
            advantages.append(self._estimate(reward_H, value_H))
        targets = [a_H + v_H for a_H, v_H in zip(advantages, values, strict=True)]
        given = _normalized(advantages) if self.normalize else advantages
        flat_H = np.concatenate([np.zeros(0), *advantages])
        metrics = {"advantage_std": float(flat_H.std())} if len(flat_H) else {}
        return state, Credit(
            advantages=tuple(_spread(a_H, hop_T) for a_H, hop_T in zip(given, hops, strict=True)),
            value_targets=tuple(_spread(t_H, hop_T) for t_H, hop_T in zip(targets, hops, strict=True)),
            metrics=metrics,
        )

    def _estimate(self, reward_H: Reals, value_H: Reals) -> Reals:
        """[H] advantages of the actions of one rollout."""
        delta_H = reward_H + self.gamma * np.append(value_H, 0.0)[1:] - value_H
        advantage_H = np.zeros(len(delta_H))
        following = 0.0
        for h in reversed(range(len(delta_H))):
            following = advantage_H[h] = delta_H[h] + self.gamma * self.lam * following
        return advantage_H


def _hops(trajectory: Trajectory) -> np.ndarray:
    """[T] number of the turn of each trained token, among turns with any."""
    lengths = [len(s) for s in trajectory.segments if s.trained and len(s)]
    return np.repeat(np.arange(len(lengths)), lengths)


def _spread(value_H: Reals, hop_T: np.ndarray) -> FloatArray:
    spread: FloatArray = value_H[hop_T].astype(np.float32)
    return spread


def _normalized(parts: list[Reals]) -> list[Reals]:
    """Minus the mean and over the standard deviation of those that are not 0."""
    flat_H = np.concatenate([np.zeros(0), *parts])
    counted_H = flat_H[flat_H != 0.0]
    if not len(counted_H):
        return parts
    mean, std = float(counted_H.mean()), float(counted_H.std())
    scale = (std if std > 1e-6 * abs(mean) else float(flat_H.std())) + 1e-8
    return [(part - mean) / scale for part in parts]
