"""Adam with decoupled weight decay. Loshchilov and Hutter 2017, arXiv:1711.05101."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.component.automatic import Rate
from posttrain.components.optimizers import Optimizer, Updates

if TYPE_CHECKING:
    import torch

    from posttrain.components.optimizers import Weights

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


@frozen
class AdamW(Optimizer):
    """As torch.optim.AdamW; weight decay on matrices only, as is usual for transformers."""

    lr: Rate = 1e-5
    """Peak learning rate; ``auto`` follows the model's size and the method."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay rates of the first and second moment."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a matrix's value taken off per unit of learning rate; vectors (norms, biases) have no decay."""

    def build(
        self, parameters: "Mapping[str, torch.nn.Parameter]", others: "Mapping[str, Weights] | None" = None
    ) -> list[Updates]:
        """One AdamW with a group of matrices and a group of vectors, each updated in one pass over the memory where
        torch can: a tenth of the time on a CPU, a few kernels for all of them on a GPU.
        """
        from posttrain.components.optimizers._adamw import AdamWUpdates

        matrices = [p for p in parameters.values() if p.ndim >= 2]
        vectors = [p for p in parameters.values() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": self.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        fused = all(p.device.type in ("cpu", "cuda") for p in parameters.values())
        given = [group for group in groups if group["params"]]
        return [AdamWUpdates(given, fused=fused, lr=self.lr, betas=self.betas, eps=self.eps)]
