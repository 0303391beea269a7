"""Preference losses: on pairs of a chosen and a rejected completion of one prompt.

Contract: a loss for each pair, to be minimised, that depends on no other pair; finite at extreme log-probabilities;
where the policy is its reference, the gradient raises the chosen completion and lowers the rejected one; it orders the
arms of a bandit as the pairs do; the numbers of a pair that it reads are constants, without a gradient. A member for
which a law does not hold names it in `exceptions`. P pairs; the axis of length 2 is (chosen, rejected).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from posttrain.component import Component
from posttrain.signals import OLD_LOGP, Signal
from posttrain.types import FloatArray, PerToken, Tokens

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Inputs of a preference loss."""

    logp_P2: "torch.Tensor"
    """Log-probability of each whole completion under the weights being trained: the sum over its trained tokens."""
    length_P2: "torch.Tensor"
    """Number of trained tokens."""
    reference_logp_P2: "Mapping[Signal, torch.Tensor]" = field(default_factory=dict)
    """The same sums under other models, and under the policy at the start of the step."""
    fields: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
    """[P] numbers of each pair that are given with it, by name: `Preference.fields`."""


@dataclass(frozen=True, kw_only=True)
class PerPair:
    """A loss for each pair, and metrics, each [P], averaged by the learner."""

    loss_P: "torch.Tensor"
    metrics: "Mapping[str, torch.Tensor]" = field(default_factory=dict)


class PreferenceLoss(Component):
    """A loss that decreases as the chosen completion becomes likelier than the rejected one."""

    @property
    def exceptions(self) -> frozenset[str]:
        """Laws of the family that do not hold for this member: ``bandit``."""
        return frozenset()

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of other models that `Pairs` must carry."""
        return frozenset()

    @property
    def reads(self) -> frozenset[str]:
        """Names of the numbers that each pair must have in `Pairs.fields`: ``margin``."""
        return frozenset()

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        raise NotImplementedError


def compare(
    loss: PreferenceLoss,
    tokens: Tokens,
    pair_P2: "torch.Tensor | None" = None,
    *,
    given: "Mapping[str, FloatArray] | None" = None,
) -> PerToken:
    """Apply a preference loss to pairs of sequences: every two of a group whose advantages differ, the higher one
    chosen, unless other pairs are given.

    The advantage of a sequence is that of its last token. The mean over a group's pairs is the loss of each token of
    the group, so that a reducer that weighs sequences equally takes the mean over groups of one size. `given` has the
    numbers of the pairs by name, one for each group ([G]); without it the margin is the difference of the rewards.
    """
    pair_P2 = pairs_in(tokens) if pair_P2 is None else pair_P2
    read = {OLD_LOGP: tokens.old_logp_T, **{need: x_T for need, x_T in tokens.signals.items() if need.name == "logp"}}
    result = loss(
        Pairs(
            logp_P2=tokens.sequence_sum(tokens.logp_T)[pair_P2],
            length_P2=tokens.length_N[pair_P2],
            reference_logp_P2={signal: tokens.sequence_sum(logp_T)[pair_P2] for signal, logp_T in read.items()},
            fields=_numbers(tokens, pair_P2, given) if loss.reads else {},
        )
    )
    return PerToken(loss_T=spread(result.loss_P, pair_P2, tokens), metrics=result.metrics)


def _numbers(
    tokens: Tokens, pair_P2: "torch.Tensor", given: "Mapping[str, FloatArray] | None"
) -> "dict[str, torch.Tensor]":
    """[P] the numbers of each pair by name."""
    import torch

    if given is None:
        return {"margin": tokens.reward_N[pair_P2[:, 0]] - tokens.reward_N[pair_P2[:, 1]]}
    group_P = tokens.group_N[pair_P2[:, 0]]
    reward_N = tokens.reward_N
    return {name: torch.as_tensor(x_G).to(reward_N.device, reward_N.dtype)[group_P] for name, x_G in given.items()}


def pairs_in(tokens: Tokens) -> "torch.Tensor":
    """[P, 2] indices of every two sequences of a group that have different advantages, the higher one first."""
    advantage_N = tokens.last(tokens.advantage_T)
    same_NN = tokens.group_N[:, None] == tokens.group_N
    return (same_NN & (advantage_N[:, None] > advantage_N)).nonzero()


def extremes_in(tokens: Tokens) -> "torch.Tensor":
    """[P, 2] indices of the sequences with the highest and the lowest advantage of each group, of equals the first one.

    A group in which all advantages are equal has no pair.
    """
    import torch

    advantage_N = tokens.last(tokens.advantage_T)

    def first(key_N: "torch.Tensor") -> "torch.Tensor":
        """[G] of each group the sequence with the lowest key."""
        by_key_N = key_N.argsort(stable=True)
        by_group_N = by_key_N[tokens.group_N[by_key_N].argsort(stable=True)]
        group_N = tokens.group_N[by_group_N]
        return by_group_N[group_N.diff(prepend=group_N[:1] - 1) != 0]

    best_G, worst_G = first(-advantage_N), first(advantage_N)
    differs_G = advantage_N[best_G] > advantage_N[worst_G]
    return torch.stack([best_G, worst_G], 1)[differs_G]


def spread(loss_P: "torch.Tensor", pair_P2: "torch.Tensor", tokens: Tokens) -> "torch.Tensor":
    """[T] for each token the mean loss of the pairs in its group; 0 where the group has none."""
    group_P = tokens.group_N[pair_P2[:, 0]]
    loss_G = loss_P.new_zeros(int(tokens.group_N.max()) + 1)
    count_G = loss_G.index_add(0, group_P, loss_P.detach().new_ones(len(group_P))).clamp(min=1)
    mean_G = loss_G.index_add(0, group_P, loss_P) / count_G
    return mean_G[tokens.group_N][tokens.sequence_T]
