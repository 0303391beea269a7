"""A flow: a velocity field that maps noise to a point, the latent of an image or an action, in a few Euler steps.

With noise in every step, the chain of points has an exact density, so that policy gradients apply to it as to text:
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
    """Sizes of the networks, and the tokens of a chain."""

    dims: PositiveInt = 2
    """Dimension of a point."""
    condition: NonNegativeInt = 0
    """Dimension of the condition of the velocity, such as an observation; 0 is unconditional."""
    steps: PositiveInt = 8
    """Euler steps from noise to the end point."""
    width: PositiveInt = 64
    """Size of a hidden layer."""
    layers: PositiveInt = 2
    """Hidden layers."""
    noise: Noise
    """Noise that is added in every step when a chain is sampled."""
    token: Literal["step", "chain"] = "step"
    """What a token is, and so what has a ratio and an advantage: a step of a chain, or a whole chain."""
    per_number: bool = False
    """Whether log-probabilities and entropies are divided by the number of drawn coordinates, so that a ratio is a root
    of the true one."""
    bound: PositiveFloat | None = None
    """Means of steps are clipped to plus and minus this (for environments that clip actions); None does not clip."""
    seed: NonNegativeInt = 0
    """Seed of the random weights."""

    def make(self, path: Path) -> Path:
        """Write a folder with ``config.json`` and ``model.safetensors``."""
        from posttrain.policies.flow import new_flow

        return new_flow(path, self)
