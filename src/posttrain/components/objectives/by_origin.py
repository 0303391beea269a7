"""One objective for sampled tokens, and another one for tokens of demonstrations.

Source: the sum of a reinforcement and an imitation loss over one batch, as in HPT, Lv et al. 2025, arXiv:2509.04419,
and in LUFFY, Yan et al. 2025, arXiv:2504.14945.

Each objective sees its own tokens only: the same sequences, with fewer tokens. Where there are demonstrations, the mean
loss of each part is a metric, ``sampled/loss`` and ``demonstrated/loss``. The reducer ``by_origin`` gives each part its
own normaliser; others treat all tokens equally.
"""

from typing import TYPE_CHECKING, Self

from pydantic import NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.signals import Signal
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class ByOrigin(Objective):
    """Sampled tokens by one loss, demonstrated ones by another."""

    sampled: Objective
    """Loss of sampled tokens."""
    demonstrated: Objective = Likelihood()
    """Loss of tokens of demonstrations; its metrics are named ``demonstrated/...``."""
    weight: NonNegativeFloat = 1.0
    """Weight of the loss of demonstrations (1 in HPT, 0.3 for its smallest model)."""

    @model_validator(mode="after")
    def check_inputs(self) -> Self:
        """Refuse a part that needs inputs of its own: both parts share a forward pass."""
        if self.sampled.foresight or self.demonstrated.foresight:
            raise PydanticCustomError("foresight", "an objective with foresight cannot be a part; set its mixing to 0")
        return self

    @property
    def uses_old(self) -> bool:
        """That of the objective of demonstrated tokens."""
        return self.demonstrated.uses_old

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of both."""
        return self.sampled.needs | self.demonstrated.needs

    @property
    def whole_groups(self) -> bool:
        """Whether either of them compares the sequences of a group."""
        return self.sampled.whole_groups or self.demonstrated.whole_groups

    @property
    def exceptions(self) -> frozenset[str]:
        """Those of the objective of sampled tokens, which is what the laws are about."""
        return self.sampled.exceptions

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        demonstrated_T = tokens.demonstrated_T
        loss_T = tokens.logp_T.new_zeros(len(demonstrated_T))
        metrics: dict[str, torch.Tensor] = {}
        mixed = bool(demonstrated_T.any())
        for prefix, objective, kept_T, weight in (
            ("", self.sampled, ~demonstrated_T, 1.0),
            ("demonstrated/", self.demonstrated, demonstrated_T, self.weight),
        ):
            if kept_T.any():
                result = objective(tokens.only(kept_T))
                loss_T = loss_T.masked_scatter(kept_T, weight * result.loss_T)
                metrics |= {f"{prefix}{name}": values for name, values in result.metrics.items()}
                if mixed:
                    metrics[f"{prefix or 'sampled/'}loss"] = result.loss_T.detach()
        return PerToken(loss_T=loss_T, metrics=metrics)
