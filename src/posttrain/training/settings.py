"""How credit becomes updates: the learner's settings, without the machinery (which needs torch)."""

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.training.optimizers import Optimizer
from posttrain.training.optimizers.adamw import AdamW
from posttrain.training.schedules import Schedule
from posttrain.training.schedules.constant import Constant


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
    """Tokens in one forward pass; smaller takes less memory and gives the same gradient. None is what suits the device:
    4,608 on a CPU, and 16,384 on a GPU."""
    clip_norm: PositiveFloat | None = 1.0
    """Largest global norm of the gradient; None leaves it as it is."""
    master_weights: bool = True
    """For a model that computes in bfloat16: whether updates are made to float32 masters of its weights, so that small
    ones are not lost."""
    mask: str | None = None
    """File (.safetensors) with a tensor of every trained parameter's shape: only entries where it is not 0 are updated,
    the others keep every bit. ``posttrain diagnose sparsity`` writes such files."""

    def tokens_at_a_time(self, device_type: str) -> int:
        """Tokens in one forward pass on a device."""
        return self.micro_batch_tokens or (4608 if device_type == "cpu" else 16384)
