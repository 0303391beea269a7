"""Settings of the learner, without torch."""

from typing import Final

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.optimizers import Optimizer
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.schedules import Schedule
from posttrain.components.schedules.constant import Constant

KEPT: Final = 1 << 30
"""Bytes that a forward pass on a CPU keeps for the backward pass, about, where a recipe does not say otherwise."""
FEWEST: Final = 2048
"""Tokens on a CPU, whatever they keep: matrices are laid out once a pass, which with fewer begins to count."""
MOST: Final = 9216
"""Tokens on a CPU: the most that was measured, and little faster than half of it."""


@frozen
class Learning:
    """Settings of the learner of one trained role."""

    optimizer: Optimizer = AdamW()
    schedule: Schedule = Constant()
    epochs: PositiveInt = 1
    """Passes over each batch."""
    minibatches: PositiveInt = 1
    """Optimizer steps per pass: the batch's trajectories are dealt into this many, in a new order each pass."""
    micro_batch_tokens: PositiveInt | None = None
    """Tokens in one forward pass; smaller takes less memory and gives the same gradient. None is what suits
    the device: on a CPU what keeps 1 GiB for the backward pass, but 2,048 to 9,216, or 4,608 of a model that does not
    count what it keeps; and on a GPU 16,384."""
    clip_norm: PositiveFloat | None = 1.0
    """Largest global norm of the gradient; None leaves it as it is."""
    master_weights: bool = True
    """For a model that computes in bfloat16: whether updates are made to float32 masters of its weights, so that small
    ones are not lost."""
    mask: str | None = None
    """File (.safetensors) with a tensor of every trained parameter's shape: only entries where it is not 0 are updated,
    the others keep every bit. ``posttrain diagnose sparsity`` writes such files."""

    def tokens_at_a_time(self, device_type: str, kept_bytes: int | None) -> int:
        """Tokens in one forward pass on a device, of a model that keeps so many bytes a token, if that is known."""
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        if device_type != "cpu":
            return 16384
        return 4608 if kept_bytes is None else min(max(KEPT // kept_bytes, FEWEST), MOST)
