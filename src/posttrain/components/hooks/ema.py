"""Makes a role's model the exponential moving average of another role's weights.

Source: Polyak and Juditsky 1992, doi:10.1137/0330046, in the exponential form of Tarvainen and Valpola 2017,
arXiv:1703.01780, equation 1: average = decay * average + (1 - decay) * weights. A decay that grows with the steps, from
a copy to a slow average: the released code of AWM, arXiv:2509.25050, min(0.3, 0.001 step).

Differs: the average is computed in the type of its weights; in bfloat16 a decay above about 0.99 changes nothing.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Hook, RoleState, state_of
from posttrain.components.hooks._weights import paired_parameters


@frozen
class EMA(Hook):
    """Keeps one model as the moving average of another."""

    source: str = "policy"
    """The role that is averaged."""
    target: str = "reference"
    """The role that holds the average."""
    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    """Share of the old average that is kept at each update of the average, in [0, 1); 0 copies."""
    every: PositiveInt = 1
    """Update the average every N steps."""
    ramp: PositiveFloat | None = None
    """The decay after step n is ramp * n until it reaches `decay`; None has `decay` from the start."""

    @property
    def roles(self) -> frozenset[str]:
        """Source and target."""
        return frozenset({self.source, self.target})

    @property
    def changed(self) -> frozenset[str]:
        """The target."""
        return frozenset({self.target})

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Update the average after every `every`-th step."""
        if step % self.every:
            return
        import torch

        source, target = state_of(self.source, states), state_of(self.target, states)
        decay = self.decay if self.ramp is None else min(self.decay, self.ramp * step)
        with torch.no_grad():
            for theirs, ours in paired_parameters(source, target):
                ours.mul_(decay).add_(theirs.to(ours.dtype), alpha=1.0 - decay)
        target.model.version = source.model.version
