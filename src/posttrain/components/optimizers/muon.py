"""Muon on hidden matrices (orthogonalised momentum), AdamW on the rest.

Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".

Differs: embeddings and the output head go to AdamW by name, as the author advises; learning rates are matched to
AdamW's by ``adjust_lr_fn = match_rms_adamw`` (Liu et al. 2025, arXiv:2502.16982), so that one ``lr`` serves both.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.component.automatic import Rate
from posttrain.components.optimizers import Optimizer, Updates

if TYPE_CHECKING:
    import torch

    from posttrain.components.optimizers import Weights

Momentum = Annotated[float, Field(ge=0.0, lt=1.0)]


@frozen
class Muon(Optimizer):
    """torch.optim.Muon for two-dimensional weights inside the layers, AdamW for everything else."""

    lr: Rate = 1e-4
    """Peak learning rate, in AdamW's scale; ``auto`` follows the model's size and the method."""
    momentum: Momentum = 0.95
    """Decay rate of the momentum that is orthogonalised."""
    betas: tuple[Momentum, Momentum] = (0.9, 0.95)
    """Of the AdamW part."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled, on matrices."""

    def build(
        self, parameters: "Mapping[str, torch.nn.Parameter]", others: "Mapping[str, Weights] | None" = None
    ) -> list[Updates]:
        """A Muon for hidden matrices (if there are any) and an AdamW for the rest."""
        import torch

        hidden = {n: p for n, p in parameters.items() if p.ndim == 2 and "embed" not in n and "head" not in n}
        rest = [p for n, p in parameters.items() if n not in hidden]
        optimizers: list[Updates] = []
        if hidden:
            matrices = list(hidden.values())
            muon = torch.optim.Muon(
                matrices,
                lr=self.lr,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
            optimizers.append(muon)
        if rest:
            optimizers.append(torch.optim.AdamW(rest, lr=self.lr, betas=self.betas, weight_decay=0.0))
        return optimizers
