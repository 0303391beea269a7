"""Settings of private training, without torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.controllers import Controller
from posttrain.components.controllers.fixed import Fixed

Bounds = tuple[Annotated[float, Field(gt=0.0)], Annotated[float, Field(gt=0.0)]]


@frozen
class Privacy:
    """Differentially private updates: (epsilon, delta) for adding or removing one demonstration."""

    epsilon: Annotated[float, Field(gt=0.0, le=1000.0)] = 4.0
    """The budget: no step is taken that would exceed it."""
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-5
    """Well below one over the number of demonstrations."""
    clip: PositiveFloat = 0.1
    """Largest norm of a demonstration's gradient, by group of parameters."""
    noise: Annotated[float, Field(gt=0.0, le=1e4)] | None = None
    """Noise multiplier of all groups together; None takes the smallest with which all steps keep within the budget."""
    groups: Literal["pairs", "tensors", "one"] = "pairs"
    """Parameters that are clipped together: the two matrices of an adapter, and other tensors each by itself;
    ``tensors``: each by itself; ``one``: all."""
    controller: Controller = Fixed()
    """Chooses bounds and noise in the course of training."""
    clip_bounds: Bounds = (1e-4, 1e4)
    """Smallest and largest bound that a controller may choose."""
    noise_bounds: Bounds = (0.3, 1e4)
    """Smallest and largest noise multiplier that it may choose."""
    measured_noise: PositiveFloat = 5.0
    """Noise multiplier of what a controller reads in each step: the shares of records within their bounds, together,
    and the loss, each."""
    largest_loss: PositiveFloat = 8.0
    """Loss of a record, in nats per token, above which it counts as this where a controller reads it."""

    @model_validator(mode="after")
    def check_bounds(self) -> Self:
        """Refuse bounds that the settings do not lie between."""
        for name, value, (low, high) in (
            ("clip", self.clip, self.clip_bounds),
            ("noise", self.noise, self.noise_bounds),
        ):
            if low > high or (value is not None and not low <= value <= high):
                context = {"name": name, "value": str(value), "low": low, "high": high}
                raise PydanticCustomError(
                    "bounds",
                    "{name} is {value}, and {name}_bounds are {low} and {high}, the smaller one first",
                    context,
                )
        return self
