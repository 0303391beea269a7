"""RPO: any preference loss plus a likelihood term of the chosen completion, so that its likelihood does not fall.

Source: Liu et al. 2024, arXiv:2405.16436. The best policy against the reward that is worst for it, among those that fit
the pairs, minimizes the DPO loss plus eta times the reward that a baseline loses; with the policy's own reward
beta log pi and the chosen completions as the baseline that is

    loss = L(pair) - eta beta s(chosen)

where s is the log-probability of a completion, summed over its tokens. Appendix F, and the
OpenRLHF branch of the authors' code, have -eta s(chosen) / length in its place, without beta: ``length="mean"`` and
``times_beta=False``. The reference's part of the baseline's reward is a constant. Of the pair's own loss nothing
changes, so the rejected completion's gradient is that of L; the chosen one's has eta beta (or eta / length) more.

A sum gives long completions a higher weight in the likelihood term. A baseline other than the chosen completions, such
as the policy's own, is `posttrain.components.penalties.optimism` with a negative coefficient.

Differs: eta below 1e-6 is not taken to be 0. Some programs take the mean over all tokens of a batch, which depends on
its other pairs; that is not implemented here.
"""

from typing import Literal, Self

from pydantic import NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss
from posttrain.components.preferences.dpo import DPO
from posttrain.signals import Signal


@frozen
class RPO(PreferenceLoss):
    """A preference loss minus a multiple of the chosen completion's log-probability."""

    loss: PreferenceLoss = DPO()
    """The loss of the pair: DPO in the paper."""
    eta: NonNegativeFloat = 0.005
    """Weight of the imitation; 0 is the loss of the pair alone (0.005 with the sum and beta, 0.2 with the mean: the
    authors' configurations)."""
    length: Literal["sum", "mean"] = "sum"
    """Whether the chosen completion's log-probability is a sum over its tokens or their mean."""
    times_beta: bool = True
    """Whether eta is multiplied by the beta of the pair's loss, as in the derivation."""

    @model_validator(mode="after")
    def check_beta(self) -> Self:
        """Refuse `times_beta` for a loss without beta."""
        if self.times_beta and not hasattr(self.loss, "beta"):
            context = {"kind": self.loss.kind}
            raise PydanticCustomError("beta", "the loss '{kind}' has no beta; set times_beta to false", context)
        return self

    @property
    def exceptions(self) -> frozenset[str]:
        """Those of the pair's loss."""
        return self.loss.exceptions

    @property
    def needs(self) -> frozenset[Signal]:
        """Those of the pair's loss."""
        return self.loss.needs

    @property
    def reads(self) -> frozenset[str]:
        """Those of the pair's loss."""
        return self.loss.reads

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair; the metric `chosen_nll` is the term that eta multiplies, before beta."""
        result = self.loss(pairs)
        nll_P = -pairs.logp_P2[:, 0]
        if self.length == "mean":
            nll_P = nll_P / pairs.length_P2[:, 0]
        weight = self.eta * (getattr(self.loss, "beta") if self.times_beta else 1.0)  # noqa: B009
        return PerPair(loss_P=result.loss_P + weight * nll_P, metrics={**result.metrics, "chosen_nll": nll_P.detach()})
