"""AIM: another merge, after which weights that the base model's activations single out are moved back to the base.

Source: Nobari et al. 2025, "Activation-informed merging", arXiv:2502.02421, one of the methods of Wu et al. 2025,
arXiv:2503.20641, applied there on a TIES merge and the base. With a_j the mean absolute value of input j of a linear
layer in the base model over calibration texts, and m the merge:

    theta = theta_0 + (1 - (1 - omega) a_j / max a) (m - theta_0)        for the weights of input j

Differs: the release of the second paper does not have it, so the form is that of the first one's description.
Parameters that are no weights of linear layers are as merged.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey, Whole
from posttrain.components.merges._differences import check_base
from posttrain.components.merges.ties import TIES

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)


@frozen
class AIM(Merge):
    """A merge, relaxed towards the base by the base's activations."""

    omega: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Share of the change that is left at the input with the largest activation (0.4 in the paper); 1 changes
    nothing."""
    then: Merge = TIES()
    """The merge."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)
        self.then.check(count)

    def at(self, coefficient: float) -> Self:
        """With another coefficient of the merge."""
        return replace(self, then=self.then.at(coefficient))

    def survey(self, whole: Whole) -> Survey:
        """The activations of the base, and what the merge needs."""
        return {"inputs": whole.inputs(), "then": self.then.survey(whole)}

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """Merge, relax."""
        base = tensors[0]
        merged = self.then(name, tensors, survey["then"])
        inputs_I = survey["inputs"].get(name)
        if inputs_I is None or float(inputs_I.max()) <= 0.0:
            return merged
        salience_I = (inputs_I / inputs_I.max()).to(base)
        relaxed: torch.Tensor = base + (1.0 - (1.0 - self.omega) * salience_I) * (merged - base)
        return relaxed
