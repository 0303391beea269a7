"""Adam with decoupled weight decay. Loshchilov and Hutter 2017, arXiv:1711.05101."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.training.optimizers import Optimizer

if TYPE_CHECKING:
    import torch

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


@frozen
class AdamW(Optimizer):
    """torch.optim.AdamW; weight decay on matrices only, as is usual for transformers."""

    lr: PositiveFloat = 1e-5
    """Peak learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay rates of the first and second moment."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a matrix's value taken off per unit of learning rate; vectors (norms, biases) are left alone."""

    def build(self, parameters: "Mapping[str, torch.nn.Parameter]") -> "list[torch.optim.Optimizer]":
        """One AdamW with a group of matrices and a group of vectors; on a GPU in a few kernels for all of them."""
        import torch

        matrices = [p for p in parameters.values() if p.ndim >= 2]
        vectors = [p for p in parameters.values() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": self.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        fused = all(p.device.type == "cuda" for p in parameters.values())
        return [
            torch.optim.AdamW(
                [g for g in groups if g["params"]], lr=self.lr, betas=self.betas, eps=self.eps, fused=fused
            )
        ]
