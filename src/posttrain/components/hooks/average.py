"""A role follows another one as an exponential moving average of its weights.

Source: Polyak and Juditsky 1992, doi:10.1137/0330046, in the exponential form of Tarvainen and Valpola 2017,
arXiv:1703.01780, equation 1: average = decay * average + (1 - decay) * weights.

Differs: the average is worked out in the type of its weights; in bfloat16 a decay above about 0.99 moves nothing.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Seat, Upkeep, seat_of
from posttrain.components.hooks._weights import side_by_side


@frozen
class Average(Upkeep):
    """One model becomes the average of what another one has been."""

    source: str = "policy"
    """The role that is averaged."""
    target: str = "reference"
    """The role that holds the average."""
    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    """Share of the old average that stays at each renewal, in [0, 1); 0 copies."""
    every: PositiveInt = 1
    """Steps between two renewals."""

    @property
    def roles(self) -> frozenset[str]:
        """Source and target."""
        return frozenset({self.source, self.target})

    @property
    def changed(self) -> frozenset[str]:
        """The target."""
        return frozenset({self.target})

    def __call__(self, step: int, seats: Mapping[str, Seat]) -> None:
        """Renew after each `every`-th step."""
        if step % self.every:
            return
        import torch

        source, target = seat_of(self.source, seats), seat_of(self.target, seats)
        with torch.no_grad():
            for theirs, ours in side_by_side(source, target):
                ours.mul_(self.decay).add_(theirs.to(ours.dtype), alpha=1.0 - self.decay)
        target.model.version = source.model.version
