"""GAE: an exponential average of a critic's multi-step advantages.

Source: Schulman et al. 2015, arXiv:1506.02438, equation 16. With r the token rewards and V the critic's value of the
state before a token, delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}.

The time axis is the trained tokens: the last token of a turn is followed by the first one of the next turn, whatever
the environment wrote in between (a tool's result is part of the state, not a step). V after the last trained token is
0, also for a rollout cut at the token limit: its score is that of its text.

Differs: whitening (of the advantages, over all tokens of the batch, mean not added back) is not in the paper but in
PPO implementations. Value targets are A + V before whitening.
"""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, whitened
from posttrain.signals import OLD_VALUE, Signal
from posttrain.types import Batch, Credit, FloatArray

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class GAE(Advantage):
    """Generalized advantage estimation from a critic's values."""

    needs: ClassVar[frozenset[Signal]] = frozenset({OLD_VALUE})

    gamma: Share = 1.0
    """Discount per trained token, in [0, 1]; below 1, long completions are worth less."""
    lam: Share = 0.95
    """In [0, 1]: 0 uses the critic's values for all after one token, 1 uses rewards only (section 3)."""
    whiten: bool = True
    """Subtract the mean of all advantages of the batch, and divide by their standard deviation."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Estimate the advantage of every token, and the critic's targets."""
        values = [value_T.astype(np.float64) for value_T in batch.signals[OLD_VALUE]]
        advantages = [self._estimate(r_T, v_T) for r_T, v_T in zip(batch.token_rewards, values, strict=True)]
        credit = Credit(
            advantages=whitened(advantages) if self.whiten else tuple(a_T.astype(np.float32) for a_T in advantages),
            value_targets=tuple((a_T + v_T).astype(np.float32) for a_T, v_T in zip(advantages, values, strict=True)),
        )
        return state, credit

    def _estimate(self, reward_T: FloatArray, value_T: Reals) -> Reals:
        """[T] advantages of one trajectory, from its last token to its first."""
        delta_T = reward_T + self.gamma * np.append(value_T, 0.0)[1:] - value_T
        advantage_T = np.zeros(len(delta_T))
        following = 0.0
        for t in reversed(range(len(delta_T))):
            following = advantage_T[t] = delta_T[t] + self.gamma * self.lam * following
        return advantage_T
