"""Small networks that choose the sampling parameters of frozen writers, one for each writer, trained by PPO.

A network takes features of what its writer reads and gives the mean of a normal distribution in front of a sigmoid,
which is scaled to the range of each parameter: temperature, top-p, top-k, tokens. An episode has one action, so its
advantage is the writer's own payoff minus its own value. B episodes, D features, K parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from posttrain.engines import Sampling
from posttrain.types import IntArray

HASHED: Final = 64
"""Features of a text: its token ids, hashed."""
RANGES: Final = ((0.3, 1.2), (0.6, 0.95), (20.0, 80.0))
"""Of temperature, top-p and top-k."""
RATE, CLIP, EPOCHS, MINIBATCH = 5e-4, 0.2, 4, 16
ENTROPY, VALUE, GRADIENT, TARGET_KL = 0.02, 0.5, 0.5, 0.015
FIRST_STD: Final = 0.5
"""Of the action in front of the sigmoid."""


def features(token_ids: IntArray, place: int, agents: int) -> NDArray[np.float32]:
    """[D] counts of hashed tokens, of unit length, and the place in the order."""
    counts = np.bincount(np.asarray(token_ids) % HASHED, minlength=HASHED).astype(np.float32)
    norm = float(np.linalg.norm(counts))
    return np.concatenate([counts / norm if norm else counts, np.eye(agents, dtype=np.float32)[place]])


def sampling_of(action_K: Sequence[float], tokens: tuple[int, int]) -> Sampling:
    """The sampling parameters of an action."""
    share_K = 1.0 / (1.0 + np.exp(-np.clip(np.asarray(action_K, np.float64), -30, 30)))
    ranges = (*RANGES, tokens)
    heat, top_p, top_k, longest = (low + (high - low) * s for (low, high), s in zip(ranges, share_K, strict=True))
    return Sampling(temperature=float(heat), top_p=float(top_p), top_k=round(top_k), max_tokens=round(longest))


@dataclass(kw_only=True)
class Agent:
    """The networks of one writer."""

    width: int
    generator: torch.Generator
    policy: Any = field(init=False)
    value: Any = field(init=False)
    log_std_K: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """New weights, drawn by the generator."""
        self.policy, self.value = self._net(len(RANGES) + 1), self._net(1)
        self.log_std_K = torch.full((len(RANGES) + 1,), float(np.log(FIRST_STD)), requires_grad=True)
        self._optimizer = torch.optim.Adam([*self.policy.parameters(), *self.value.parameters(), self.log_std_K], RATE)

    def _net(self, out: int) -> Any:
        net = torch.nn.Sequential(
            torch.nn.Linear(self.width, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 128),
            torch.nn.ReLU(),
            torch.nn.Linear(128, out),
        )
        with torch.no_grad():
            for layer in net:
                if isinstance(layer, torch.nn.Linear):
                    reach = layer.in_features**-0.5
                    layer.weight.uniform_(-reach, reach, generator=self.generator)
                    layer.bias.zero_()
        return net

    def act(self, seen_BD: torch.Tensor, *, greedy: bool = False) -> torch.Tensor:
        """[B, K] actions in front of the sigmoid: drawn, or their means."""
        with torch.no_grad():
            mean_BK: torch.Tensor = self.policy(seen_BD)
            if greedy:
                return mean_BK
            return mean_BK + self.log_std_K.exp() * torch.randn(mean_BK.shape, generator=self.generator)

    def logp(self, seen_BD: torch.Tensor, action_BK: torch.Tensor) -> torch.Tensor:
        """[B] log-density of actions."""
        spread = torch.distributions.Normal(self.policy(seen_BD), self.log_std_K.exp())
        total: torch.Tensor = spread.log_prob(action_BK).sum(1)  # type: ignore[no-untyped-call]
        return total

    def learn(self, seen_BD: torch.Tensor, action_BK: torch.Tensor, payoff_B: torch.Tensor) -> float:
        """Passes of PPO over a batch; they end after one whose KL is above the target. Returns the last KL."""
        with torch.no_grad():
            old_B = self.logp(seen_BD, action_BK)
            advantage_B = payoff_B - self.value(seen_BD)[:, 0]
            if len(advantage_B) > 1:
                advantage_B = (advantage_B - advantage_B.mean()) / (advantage_B.std() + 1e-8)
        kl = 0.0
        for _ in range(EPOCHS):
            order = torch.randperm(len(seen_BD), generator=self.generator)
            for own in order.split(MINIBATCH):  # type: ignore[no-untyped-call]
                loss = self.loss(seen_BD[own], action_BK[own], payoff_B[own], advantage_B[own], old_B[own])
                self._optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                for group in self._optimizer.param_groups:
                    torch.nn.utils.clip_grad_norm_(group["params"], GRADIENT)
                self._optimizer.step()
            with torch.no_grad():
                kl = float((old_B - self.logp(seen_BD, action_BK)).mean())
            if kl > TARGET_KL:
                break
        return kl

    def loss(
        self,
        seen_BD: torch.Tensor,
        action_BK: torch.Tensor,
        payoff_B: torch.Tensor,
        advantage_B: torch.Tensor,
        old_B: torch.Tensor,
    ) -> torch.Tensor:
        """The clipped loss, half of the squared error of the value, and minus a part of the entropy."""
        ratio_B = (self.logp(seen_BD, action_BK) - old_B).exp()
        taken_B = torch.minimum(ratio_B * advantage_B, ratio_B.clamp(1 - CLIP, 1 + CLIP) * advantage_B)
        error = ((self.value(seen_BD)[:, 0] - payoff_B) ** 2).mean()
        entropy = (self.log_std_K + 0.5 * float(np.log(2 * np.pi * np.e))).sum()
        total: torch.Tensor = -taken_B.mean() + VALUE * error - ENTROPY * entropy
        return total
