"""Policies that are tables of logits, and what pushes them: C rows (contexts of all seeds), K actions, N samples."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from posttrain.components.preferences import Pairs, PreferenceLoss
from posttrain.signals import OLD_LOGP
from posttrain.types import FloatArray

if TYPE_CHECKING:
    import torch

ACTIONS = 100
CENTER, SCALE = -0.7, 0.4
"""Of the reference's Cauchy distribution, before it is squashed by tanh to (-1, 1)."""


def reference_K() -> FloatArray:
    """[K] the reference: a Cauchy variable, squashed by tanh, in bins of equal width.

    Its median is in bin 19; the tails are at both ends.
    """
    edges = np.linspace(-1.0, 1.0, ACTIONS + 1)
    with np.errstate(divide="ignore"):
        below = np.arctan((np.arctanh(edges) - CENTER) / SCALE) / math.pi
    return np.asarray(np.diff(below))


def reward_K(peak: float, width: float) -> FloatArray:
    """[K] reward of each action: exp(-((a - peak) / width)^2)."""
    return np.asarray(np.exp(-(((np.arange(ACTIONS) - peak) / width) ** 2)))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The samples that an update learns from."""

    logp_CN: "torch.Tensor"
    """Log-probability of each sampled action under the table that is trained."""
    old_logp_CN: "torch.Tensor"
    """The same when they were sampled, or when the epoch began."""
    reference_logp_CN: "torch.Tensor"
    reward_CN: "torch.Tensor"
    advantage_CN: "torch.Tensor"
    """Reward minus the mean of all that the seed has seen, over their standard deviation."""


Loss = Callable[[Seen], "torch.Tensor"]
"""[C] the loss of each row."""


def best_of_n(seen: Seen) -> "torch.Tensor":
    """Minus the log-probability of the best sample, the first of equals."""
    return -seen.logp_CN.gather(1, seen.reward_CN.argmax(1, keepdim=True))[:, 0]


def best_against_others(seen: Seen) -> "torch.Tensor":
    """The same, plus a tenth of the mean log-probability of the other samples."""
    count = seen.logp_CN.shape[1]
    best_C = -best_of_n(seen)
    others_C = (seen.logp_CN.sum(1) - best_C) / max(count - 1, 1)
    return -best_C + 0.1 * others_C


def rwr(seen: Seen) -> "torch.Tensor":
    """Reward-weighted regression: exp(r / 0.1), as a share of its largest possible value."""
    return -(((seen.reward_CN - 1.0) / 0.1).exp() * seen.logp_CN).mean(1)


def reinforce(seen: Seen) -> "torch.Tensor":
    """Minus advantage times log-probability."""
    return -(seen.advantage_CN * seen.logp_CN).mean(1)


def reinforce_positive(seen: Seen) -> "torch.Tensor":
    """The same with advantages from 0 on: the lowest of each row is subtracted."""
    raised_CN = seen.advantage_CN - seen.advantage_CN.min(1, keepdim=True).values
    return -(raised_CN * seen.logp_CN).mean(1)


def ppo(seen: Seen) -> "torch.Tensor":
    """The clipped ratio, 0.2 on both sides."""
    ratio_CN = (seen.logp_CN - seen.old_logp_CN).exp()
    clipped_CN = ratio_CN.clamp(0.8, 1.2)
    return -(ratio_CN * seen.advantage_CN).minimum(clipped_CN * seen.advantage_CN).mean(1)


LOSSES: Mapping[str, Loss] = {
    loss.__name__: loss for loss in (best_of_n, best_against_others, rwr, reinforce, reinforce_positive, ppo)
}


def on_pairs(loss: PreferenceLoss) -> Loss:
    """A preference loss on every two samples of a row that differ in reward; the mean over them."""

    def of(seen: Seen) -> "torch.Tensor":
        import torch

        rows, first, second = (seen.reward_CN[:, :, None] > seen.reward_CN[:, None, :]).nonzero().unbind(1)

        def both(x_CN: "torch.Tensor") -> "torch.Tensor":
            return torch.stack([x_CN[rows, first], x_CN[rows, second]], 1)

        known = {need: both(seen.reference_logp_CN) for need in loss.needs if need != OLD_LOGP}
        margin_P = seen.reward_CN[rows, first] - seen.reward_CN[rows, second]
        logp_P2 = both(seen.logp_CN)
        found = loss(
            Pairs(
                logp_P2=logp_P2,
                length_P2=torch.ones_like(logp_P2, dtype=torch.long),
                reference_logp_P2={**known, OLD_LOGP: both(seen.old_logp_CN)},
                fields={"margin": margin_P} if loss.reads else {},
            )
        )
        total_C = logp_P2.new_zeros(len(seen.logp_CN)).index_add(0, rows, found.loss_P)
        count_C = logp_P2.new_zeros(len(seen.logp_CN)).index_add(0, rows, torch.ones_like(found.loss_P.detach()))
        return total_C / count_C.clamp(min=1.0)

    return of


@dataclass(frozen=True, kw_only=True)
class Game:
    """The set-up of one training."""

    reward_K: FloatArray
    samples: int
    epochs: int
    reuse: int
    seeds: int
    contexts: int


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The outcome, a number for each seed ([S])."""

    reward_S: FloatArray
    """Expected reward, summed over all actions."""
    chosen_S: FloatArray
    """Change of the mean log-probability of the better half of what the reference samples."""
    rejected_S: FloatArray
    """The same of the worse half."""


def train(loss: Loss, game: Game, *, own: bool, rate: float) -> Trained:
    """Train one table a context with Adam; samples are its `own` of each epoch, or always the reference's."""
    import torch

    table = torch.as_tensor(np.log(reference_K()), dtype=torch.float64)
    logits_CK = table.repeat(game.seeds * game.contexts, 1).requires_grad_()
    start_CK = logits_CK.detach().clone()
    reward_k = torch.as_tensor(game.reward_K, dtype=torch.float64)
    optimizer = torch.optim.Adam([logits_CK], lr=rate)
    draws = [np.random.Generator(np.random.Philox(key=[seed, int(own)])) for seed in range(game.seeds)]
    moments = _Moments.start(game.seeds)
    for _ in range(game.epochs):
        source_CK = logits_CK.detach() if own else start_CK
        action_CN = _drawn(source_CK.softmax(1), game, draws)
        reward_CN = reward_k[action_CN]
        moments = moments.after(reward_CN.reshape(game.seeds, -1))
        seen = Seen(
            logp_CN=reward_CN,  # replaced in every update
            old_logp_CN=logits_CK.detach().log_softmax(1).gather(1, action_CN),
            reference_logp_CN=start_CK.log_softmax(1).gather(1, action_CN),
            reward_CN=reward_CN,
            advantage_CN=moments.normalized(reward_CN, game.contexts),
        )
        for _ in range(game.reuse):
            optimizer.zero_grad()
            total = loss(replace(seen, logp_CN=logits_CK.log_softmax(1).gather(1, action_CN))).sum()
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return _outcome(logits_CK.detach(), start_CK, reward_k, game)


def _drawn(p_CK: "torch.Tensor", game: Game, draws: list[np.random.Generator]) -> "torch.Tensor":
    """[C, N] samples, those of a seed from its own generator."""
    import torch

    uniform = np.concatenate([rng.random((game.contexts, game.samples)) for rng in draws])
    found = torch.searchsorted(p_CK.cumsum(1).contiguous(), torch.as_tensor(uniform))
    return found.clamp(max=p_CK.shape[1] - 1)


@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Count, mean and sum of squared distances of all rewards that each seed has seen."""

    count: int
    mean_S: "torch.Tensor"
    squares_S: "torch.Tensor"

    @classmethod
    def start(cls, seeds: int) -> "_Moments":
        import torch

        zero = torch.zeros(seeds, dtype=torch.float64)
        return cls(count=0, mean_S=zero, squares_S=zero)

    def after(self, reward_SN: "torch.Tensor") -> "_Moments":
        new, mean_S = reward_SN.shape[1], reward_SN.mean(1)
        gap_S, count = mean_S - self.mean_S, self.count + new
        squares_S = ((reward_SN - mean_S[:, None]) ** 2).sum(1) + gap_S**2 * self.count * new / count
        return _Moments(count=count, mean_S=self.mean_S + gap_S * new / count, squares_S=self.squares_S + squares_S)

    def normalized(self, reward_CN: "torch.Tensor", contexts: int) -> "torch.Tensor":
        std_S = (self.squares_S / self.count).sqrt() + 1e-12
        return (reward_CN - self.mean_S.repeat_interleave(contexts)[:, None]) / std_S.repeat_interleave(contexts)[
            :, None
        ]


def _outcome(end_CK: "torch.Tensor", start_CK: "torch.Tensor", reward_k: "torch.Tensor", game: Game) -> Trained:
    reference_k = start_CK[0].softmax(0)
    order = reward_k.argsort(descending=True)
    better_k = (reference_k[order].cumsum(0) <= 0.5)[order.argsort()]
    moved_CK = end_CK.log_softmax(1) - start_CK.log_softmax(1)

    def by_seed(x_C: "torch.Tensor") -> FloatArray:
        return np.asarray(x_C.reshape(game.seeds, game.contexts).mean(1).numpy())

    def moved(part_k: "torch.Tensor") -> FloatArray:
        weight_k = reference_k * part_k
        return by_seed((moved_CK * weight_k).sum(1) / weight_k.sum())

    return Trained(
        reward_S=by_seed(end_CK.softmax(1) @ reward_k), chosen_S=moved(better_k), rejected_S=moved(~better_k)
    )
