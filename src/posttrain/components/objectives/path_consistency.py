r"""Path consistency: along every path, value, reward to come and log-ratios to a reference must add up.

Source: Nachum et al. 2017 (PCL), arXiv:1702.08892; for language models Wang et al. 2024 (OREO), arXiv:2412.16145. The
policy that maximises reward minus beta times its KL to a reference, and its soft value V, are the ones for which

    V(s_t) + beta S_t = R_t,    S_t = sum over i >= t of log pi(a_i) - log reference(a_i)

holds at every state of every path, whoever took it: so any data will do, and a response needs no partner. R_t is the
reward from t on (for a reward at the end the same at every state). The loss is the square of what is missing, averaged
over the states of a response; policy and value have the same loss and differ in what is differentiated:

    learns: value     V, with S_t of the policy as the step found it
    learns: policy    the log-ratios of the step that begins at t, with V as the step found it and later steps fixed

`states` says what a step is. ``token`` has a state before each token; ``turn`` has one where a turn begins: an agent's,
or a line of a recorded completion (`rollouts/recorded`, delimiter); ``sequence`` has the prompt only, and all of the
response is differentiated.

The policy's advantage must be R_t - V(s_t) and the value's target R_t: the advantage `gae` with gamma 1, lam 1 and no
whitening. All rewards 0 teach as well: V goes to 0, and what the policy preferred to the reference is taken back.

Differs: a state stands at its first token and counts for all tokens of its step, so that a mean over tokens is one over
states. Later steps' log-ratios are those of the weights being trained, also in later updates of a batch. Clipping of
S_t, weights by the response's ratio and the hinge for right responses, none of which the authors' scripts use, are not
here.
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
    """Where states are: before every token, at the beginning of every turn, or at that of the response."""
    role: str = "reference"
    """The model that log-ratios are taken to."""

    @property
    def exceptions(self) -> frozenset[str]:
        """An advantage of 0 leads back to the reference, and the slope is that of a square; values choose nothing."""
        return frozenset({"zero_advantage", "reinforce"} | ({"bandit"} if self.learns == "value" else set()))

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities; for the value also the policy's own, as the step found it."""
        return frozenset({logp_of(self.role)} | ({VALUE, OLD_LOGP} if self.learns == "value" else set()))

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token, 0 where no state is; the metric is how much is missing, without its sign."""
        begins_T = self._begins(tokens)
        missing_T = self._of_value(tokens) if self.learns == "value" else self._of_policy(tokens, begins_T)
        share_T = begins_T.to(missing_T.dtype)
        tokens_per_state_N = tokens.length_N / tokens.sequence_sum(share_T).clamp(min=1.0)
        loss_T = missing_T**2 * share_T * tokens_per_state_N[tokens.sequence_T]
        return PerToken(loss_T=loss_T, metrics={"residual": missing_T.detach()[begins_T].abs()})

    def _of_value(self, tokens: Tokens) -> "torch.Tensor":
        """[T] V + beta S - R, where only V is differentiated."""
        assert tokens.value_target_T is not None, "a critic's batch has targets"
        ratio_T = tokens.old_logp_T - tokens[logp_of(self.role)]
        return tokens[VALUE] + self.beta * _to_come(tokens, ratio_T) - tokens.value_target_T

    def _of_policy(self, tokens: Tokens, begins_T: "torch.Tensor") -> "torch.Tensor":
        """[T] beta S - (R - V) at states, where only the log-ratios of the state's step are differentiated."""
        ratio_T = tokens.logp_T - tokens[logp_of(self.role)]
        step_T = begins_T.long().cumsum(0) - 1
        own_T = ratio_T.new_zeros(len(ratio_T)).scatter_add(0, step_T, ratio_T)[step_T]
        later_T = _to_come(tokens, ratio_T) - own_T.detach()
        return self.beta * (own_T + later_T) - tokens.advantage_T

    def _begins(self, tokens: Tokens) -> "torch.Tensor":
        """[T] whether a state stands before the token."""
        begins_T = tokens.sequence_T >= 0
        if self.states != "token":
            begins_T[1:] = tokens.sequence_T.diff() != 0
        if self.states == "turn":
            begins_T[1:] |= tokens.turn_T.diff() != 0
        return begins_T


def _to_come(tokens: Tokens, x_T: "torch.Tensor") -> "torch.Tensor":
    """[T] sum of a quantity over a token and all that follow it in its sequence, not differentiated.

    In float64, because the sums run over all sequences of the micro-batch.
    """
    exact_T = x_T.detach().double()
    until_T = exact_T.cumsum(0)
    whole_T = until_T[tokens.length_N.cumsum(0) - 1][tokens.sequence_T]
    return (whole_T - until_T + exact_T).to(x_T.dtype)
