"""Settings of learning the order of subtasks, apart from what needs torch."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from posttrain.component import frozen


@frozen
class OrderLearning:
    """How Q is learned. Only the outline is published; these values are ours."""

    targets: Literal["double", "returns"] = "double"
    """``double``: r + gamma Q_slow(s', argmax Q(s', .)); ``returns``: the discounted sum of rewards to the end."""
    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Discount."""
    copy_every: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Updates after which the slow copy is renewed."""
    replay: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Newest steps that are kept."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Steps of an update."""
    rate: PositiveFloat = 1e-3
    """Learning rate of Adam."""
    explore: tuple[Annotated[float, Field(ge=0.0, le=1.0)], Annotated[float, Field(ge=0.0, le=1.0)]] = (1.0, 0.05)
    """Share of random actions at the start and at the end, in between on a line."""
