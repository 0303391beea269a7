"""GAE: an exponential average of a critic's multi-step advantages.

Source: Schulman et al. 2015, arXiv:1506.02438, equation 16. With r the token rewards and V the critic's value of the
state before a token, delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}.

The time axis is the trained tokens: the last token of a turn is followed by the first one of the next turn, whatever
the environment wrote in between (a tool's result is part of the state, not a step). V after the last trained token is
0, also for a rollout cut at the token limit: its score is that of its text.

Differs: whitening (of the advantages, over all tokens of the batch, mean not added back) is not in the paper but in
PPO implementations. Value targets are A + V before whitening.

`whiten_rewards`, `divisor` and `padded` are those of the release of Fine-Grained RLHF, arXiv:2306.01693: rewards are
whitened too, with their mean added back; its utility divides by the root of the standard deviation; and the recursion
starts at the end of the longest rollout, at padding whose rewards were zero and are constants after whitening, so that
short rollouts have a small reward from there.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, whitened
from posttrain.signals import OLD_VALUE, Signal
from posttrain.types import Batch, Credit

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class GAE(Advantage):
    """Generalized advantage estimation from a critic's values."""

    needs: ClassVar[frozenset[Signal]] = frozenset({OLD_VALUE})

    gamma: Share = 1.0
    """Discount per trained token, in [0, 1]; below 1, long completions get less."""
    lam: Share = 0.95
    """In [0, 1]: 0 uses the critic's values for all after one token, 1 uses rewards only (section 3)."""
    whiten: bool = True
    """Subtract the mean of all advantages of the batch, and divide by their standard deviation."""
    whiten_rewards: bool = False
    """Divide the token rewards by their standard deviation over the batch, around their mean, which stays."""
    divisor: Literal["std", "sqrt_std"] = "std"
    """What whitening divides by; ``sqrt_std`` is the release of Fine-Grained RLHF."""
    padded: bool = False
    """Whether the rewards of padding after shorter rollouts are whitened and counted, as in that release."""

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """Returns with gamma = lam = 1 and without whitening of rewards."""
        return "returns" if self.gamma == self.lam == 1.0 and not self.whiten_rewards else "tokens"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Estimate the advantage of every token, and the critic's targets."""
        values = [value_T.astype(np.float64) for value_T in batch.signals[OLD_VALUE]]
        rewards, padding = self._rewards([reward_T.astype(np.float64) for reward_T in batch.token_rewards])
        longest = max(map(len, rewards), default=0)
        advantages = [
            self._estimate(r_T, v_T, padding, longest - len(r_T)) for r_T, v_T in zip(rewards, values, strict=True)
        ]
        targets = tuple((a_T + v_T).astype(np.float32) for a_T, v_T in zip(advantages, values, strict=True))
        flat_T = np.concatenate([np.zeros(0), *advantages])
        metrics = {"advantage_std": float(flat_T.std())} if len(flat_T) else {}
        if not self.whiten:
            given = tuple(a_T.astype(np.float32) for a_T in advantages)
        elif self.divisor == "std":
            given = whitened(advantages)
        else:
            scale = _divisor(flat_T, self.divisor)
            given = tuple(((a_T - flat_T.mean()) / scale).astype(np.float32) for a_T in advantages)
        return state, Credit(advantages=given, value_targets=targets, metrics=metrics)

    def _rewards(self, rewards: list[Reals]) -> tuple[list[Reals], float]:
        """The token rewards, and the reward of a token of padding."""
        flat_T = np.concatenate([np.zeros(0), *rewards])
        if not self.whiten_rewards or len(flat_T) < 2:
            return rewards, 0.0
        mean, scale = float(flat_T.mean()), _divisor(flat_T, self.divisor)
        padding = (0.0 - mean) / scale + mean if self.padded else 0.0
        return [(reward_T - mean) / scale + mean for reward_T in rewards], padding

    def _estimate(self, reward_T: Reals, value_T: Reals, padding: float, missing: int) -> Reals:
        """[T] advantages of one trajectory, from its last token to its first; padding has the value 0."""
        delta_T = reward_T + self.gamma * np.append(value_T, 0.0)[1:] - value_T
        advantage_T = np.zeros(len(delta_T))
        following = 0.0
        for _ in range(missing if padding else 0):
            following = padding + self.gamma * self.lam * following
        for t in reversed(range(len(delta_T))):
            following = advantage_T[t] = delta_T[t] + self.gamma * self.lam * following
        return advantage_T


def _divisor(flat_T: Reals, divisor: str) -> float:
    """The standard deviation of all tokens, or its root; a variance of 0 divides by 1e-4, as in whitening."""
    std = float(np.sqrt(flat_T.var(ddof=1) + 1e-8)) if len(flat_T) > 1 else 1.0
    return std if divisor == "std" else float(np.sqrt(std))
