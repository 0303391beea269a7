"""A flow: a velocity field that carries noise to a point, an image's latent or an action, in a few Euler steps.

With noise in every step the chain of points has an exact density, so that it can be learned from like text:
`posttrain.policies.flow`.
"""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.noises import Noise
from posttrain.components.shapes import Shape


@frozen
class Flow(Shape):
    """Sizes of the networks, and what one token of a chain is."""

    dims: PositiveInt = 2
    """Numbers in a point."""
    condition: NonNegativeInt = 0
    """Numbers that the velocity depends on beside point and time: an observation, a condition; 0 is unconditional."""
    steps: PositiveInt = 8
    """Euler steps from noise to the end point."""
    width: PositiveInt = 64
    """Numbers in a hidden layer."""
    layers: PositiveInt = 2
    """Hidden layers."""
    noise: Noise
    """What is added in every step when a chain is sampled."""
    token: Literal["step", "chain"] = "step"
    """What one token is, and so what has a ratio and gets credit: a step of a chain, or a whole chain."""
    per_number: bool = False
    """Whether log-probabilities and entropies are divided by the numbers that were drawn, so that a ratio is the root
    of the true one."""
    bound: PositiveFloat | None = None
    """Means of steps are held within plus and minus this (actions that the world clips); None leaves them free."""
    seed: NonNegativeInt = 0
    """Which random weights."""

    def make(self, path: Path) -> Path:
        """Write a folder with ``config.json`` and ``model.safetensors``."""
        from posttrain.policies.flow import new_flow

        return new_flow(path, self)
