r"""Path consistency: squared residual between value, return to go and log-ratios to a reference along every path.

Source: Nachum et al. 2017 (PCL), arXiv:1702.08892; for language models Wang et al. 2024 (OREO), arXiv:2412.16145. The
policy that maximises reward minus beta times its KL to a reference, and its soft value V, are the ones for which

    V(s_t) + beta S_t = R_t,    S_t = sum over i >= t of log pi(a_i) - log reference(a_i)

holds at every state of every path, sampled by any policy: so data may be off-policy, and groups are not needed. R_t is
the reward from t on (for a reward at the end the same at every state). The loss is the squared residual, averaged over
the states of a response; policy and value have the same loss and differ in what is differentiated:

    learns: value     V, with S_t of the policy at the start of the step
    learns: policy    the log-ratios of the step from t, with V at the start of the step and later steps fixed

`states` defines a step. ``token`` has a state before each token; ``turn`` has one at the start of a turn: an agent's,
or a line of a recorded completion (`rollouts/recorded`, delimiter); ``sequence`` has the prompt only, and all of the
response is differentiated.

The policy's advantage must be R_t - V(s_t) and the value's target R_t: the advantage `gae` with gamma 1, lam 1 and no
whitening. Rewards of 0 have a gradient too: V goes to 0, and the policy goes back to the reference.

Differs: a state stands at its first token and counts for all tokens of its step, so that a mean over tokens is one over
states. Later steps' log-ratios are those of the weights being trained, also in later updates of a batch. Clipping of
S_t, weights by the response's ratio and the hinge for right responses, none of which the authors' scripts use, are not
implemented.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import OLD_LOGP, VALUE, Signal, logp_of
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class PathConsistency(Objective):
    """Squared residual of the soft Bellman equation from a state to the end."""

    learns: Literal["policy", "value"] = "policy"
    """Whose side is differentiated: an objective's, or a critic's."""
    beta: PositiveFloat = 0.03
    """Weight of the divergence from the reference, in units of reward per nat (0.03: the authors' scripts)."""
    states: Literal["token", "turn", "sequence"] = "token"
    """Where states are: before every token, at the start of every turn, or at that of the response."""
    role: str = "reference"
    """The role of the reference of the log-ratios."""

    @property
    def exceptions(self) -> frozenset[str]:
        """With an advantage of 0 it still regularizes; its loss is a square; a critic has no actions."""
        return frozenset({"zero_advantage", "reinforce"} | ({"bandit"} if self.learns == "value" else set()))

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities; for the value also the policy's own, at the start of the step."""
        return frozenset({logp_of(self.role)} | ({VALUE, OLD_LOGP} if self.learns == "value" else set()))

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token, 0 where no state is; the metric is the absolute residual."""
        starts_T = self._starts(tokens)
        residual_T = self._of_value(tokens) if self.learns == "value" else self._of_policy(tokens, starts_T)
        share_T = starts_T.to(residual_T.dtype)
        tokens_per_state_N = tokens.length_N / tokens.sequence_sum(share_T).clamp(min=1.0)
        loss_T = residual_T**2 * share_T * tokens_per_state_N[tokens.sequence_T]
        return PerToken(loss_T=loss_T, metrics={"residual": residual_T.detach()[starts_T].abs()})

    def _of_value(self, tokens: Tokens) -> "torch.Tensor":
        """[T] V + beta S - R, where only V is differentiated."""
        assert tokens.value_target_T is not None, "a critic's batch has targets"
        ratio_T = tokens.old_logp_T - tokens[logp_of(self.role)]
        return tokens[VALUE] + self.beta * _to_come(tokens, ratio_T) - tokens.value_target_T

    def _of_policy(self, tokens: Tokens, starts_T: "torch.Tensor") -> "torch.Tensor":
        """[T] beta S - (R - V) at states, where only the log-ratios of the state's step are differentiated."""
        ratio_T = tokens.logp_T - tokens[logp_of(self.role)]
        step_T = starts_T.long().cumsum(0) - 1
        own_T = ratio_T.new_zeros(len(ratio_T)).scatter_add(0, step_T, ratio_T)[step_T]
        later_T = _to_come(tokens, ratio_T) - own_T.detach()
        return self.beta * (own_T + later_T) - tokens.advantage_T

    def _starts(self, tokens: Tokens) -> "torch.Tensor":
        """[T] whether a state stands before the token."""
        starts_T = tokens.sequence_T >= 0
        if self.states != "token":
            starts_T[1:] = tokens.sequence_T.diff() != 0
        if self.states == "turn":
            starts_T[1:] |= tokens.turn_T.diff() != 0
        return starts_T


def _to_come(tokens: Tokens, x_T: "torch.Tensor") -> "torch.Tensor":
    """[T] sum of a quantity over a token and all that follow it in its sequence, not differentiated.

    In float64, because the sums run over all sequences of the micro-batch.
    """
    exact_T = x_T.detach().double()
    until_T = exact_T.cumsum(0)
    whole_T = until_T[tokens.length_N.cumsum(0) - 1][tokens.sequence_T]
    return (whole_T - until_T + exact_T).to(x_T.dtype)
