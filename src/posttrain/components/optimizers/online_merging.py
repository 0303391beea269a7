"""AdamW whose every step is merged with what fine-tuning had changed: less is forgotten while preferences are learned.

Source: Lu et al. 2024, arXiv:2405.17931 (OnDARE), and its release (QwenLM/online_merging_optimizers at 8e53529); used
for the offline stage of Qwen2.5, arXiv:2412.15115. With d the step of AdamW, tau = reference - base the change by
fine-tuning, and D a random choice of a share `keep` of the entries, divided by it,

    weights <- weights + (1 - alpha) D(d) + alpha D(tau)

D(tau) is drawn once, when the stage begins, and its entries are held in [-1, 1]; D(d) is drawn in every step. With keep
1 and alpha 0 it is AdamW to the bit. alpha D(tau) is added in every step, whatever the rate: over n steps it adds
alpha n tau, so that alpha must be small.

Differs: draws are keyed by name and step, so that a resumed run has those of the uninterrupted one. Left out: merging
every k-th step only, the other rule (OnTIES), and rescaling to the sum of magnitudes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.component.automatic import Rate
from posttrain.components.optimizers import Optimizer, Updates
from posttrain.components.optimizers.adamw import AdamW, Decay
from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch

    from posttrain.components.optimizers import Weights


@frozen
class OnlineMerging(Optimizer):
    """AdamW with sparse steps, and a share of an earlier change added to each."""

    lr: Rate = 1e-5
    """Peak learning rate of AdamW."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay rates of the first and second moment."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """As in AdamW; a part of its step."""
    keep: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of the entries of a step, and of tau, that are kept."""
    alpha: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-4
    """Weight of tau in each step."""
    reference: str = "reference"
    """Role of the fine-tuned model; as a copy of the policy it is the model at the start of the stage."""
    base: str = "base"
    """Role of the model that it was fine-tuned from."""

    @property
    def roles(self) -> frozenset[str]:
        """The fine-tuned model and its base."""
        return frozenset({self.reference, self.base})

    def build(
        self, parameters: "Mapping[str, torch.nn.Parameter]", others: "Mapping[str, Weights] | None" = None
    ) -> list[Updates]:
        """One optimizer of all parameters. Raises `UserError` for models of other shapes."""
        from posttrain.components.optimizers._merging import MergingUpdates, change

        reference, base = ((others or {}).get(role) for role in (self.reference, self.base))
        if reference is None or base is None:
            raise UserError(
                f"the online_merging optimizer reads the roles '{self.reference}' and '{self.base}', and one of them "
                "is not there; write models.base.source=FOLDER for the model before fine-tuning"
            )
        tau = change(parameters, reference, base, self.keep)
        inner = AdamW(lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay)
        made: list[Any] = [
            MergingUpdates(updates, parameters, tau, keep=self.keep, alpha=self.alpha)
            for updates in inner.build(parameters)
        ]
        return made
