"""Settings of the learner, without torch."""

from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.optimizers import Optimizer
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.schedules import Schedule
from posttrain.components.schedules.constant import Constant
from posttrain.training.privacy import Privacy

if TYPE_CHECKING:
    from posttrain.policies import Policy

ROOM: Final = 1 << 30
"""Approximate bytes that a forward pass on a CPU keeps for the backward pass, by default, for a small model."""
FEWEST: Final = 256
"""Fewest tokens per pass on a CPU: below it, laying out the weights once per pass takes a noticeable share."""
MOST: Final = 9216
"""Most tokens per pass on a CPU: the largest measured, and little faster than half of it."""


@frozen
class Learning:
    """Settings of the learner of one trained role."""

    optimizer: Optimizer = AdamW()
    schedule: Schedule = Constant()
    epochs: PositiveInt = 1
    """Epochs over each batch."""
    minibatches: PositiveInt = 1
    """Optimizer steps per epoch: the batch's trajectories are split into this many, in a new order in each epoch."""
    micro_batch_tokens: PositiveInt | None = None
    """Tokens in one forward pass; fewer take less memory and give the same gradient. None is a default by device: on a
    CPU as many as keep 1 GiB for the backward pass, less a third of what weights, gradients and optimizer take but at
    least 160 MiB, within 256 to 9,216 tokens, or 4,608 for a model without that estimate; on a GPU 16,384.
    """
    recompute: bool = False
    """Whether the backward pass computes the layers of a native decoder again, so that the forward pass keeps only what
    they are given; the bits are the same. On a CPU very long sequences are computed so in any case."""
    offload: str | None = None
    """Folder on a disk: the optimizer's moments, and masters, are in files there that the memory of a CPU has room for
    only while weights are updated; the bits are the same. None keeps them in memory."""
    carried: bool = False
    """Whether the optimizer's moments are those that the last stage left which trained the same role; the schedule, and
    the draws of minibatches, begin anew in any case. Otherwise moments begin anew too."""
    clip_norm: PositiveFloat | None = 1.0
    """Largest global norm of the gradient; None for no clipping."""
    stop_at: PositiveFloat | None = None
    """Nats: before an update, if the mean over its trajectories of log p - old log p, summed over each, is further from
    0 than this, the update and those left of the step are skipped (20 in LOOP, arXiv:2502.01600). None skips none."""
    stop_by: Literal["difference", "k3"] = "difference"
    """What `stop_at` bounds: the mean of d = log p - old log p of whole trajectories, or of exp(d) - 1 - d, which is
    never negative (arXiv:2504.16129)."""
    master_weights: bool = True
    """For a model in bfloat16: whether updates are applied to float32 master weights, so that small ones are not lost.
    """
    mask: str | None = None
    """File (.safetensors) with a tensor of every trained parameter's shape: only entries where it is not 0 are updated,
    the others stay bit-identical. ``posttrain diagnose sparsity`` writes such files.
    """

    privacy: Privacy | None = None
    """Differentially private updates on the demonstrations of an sft stage; None for plain ones."""

    @model_validator(mode="after")
    def check_privacy(self) -> Self:
        """Refuse settings that private updates have no use for."""
        unused = [
            name
            for name, is_set in (
                ("epochs", self.epochs > 1),
                ("minibatches", self.minibatches > 1),
                ("clip_norm", self.clip_norm is not None),
                ("stop_at", self.stop_at is not None),
                ("mask", self.mask is not None),
                ("carried", self.carried),
            )
            if is_set
        ]
        if self.privacy is not None and unused:
            what = "private updates clip each record and take one update per batch: leave out {name}{null}"
            context = {"name": unused[0], "null": ", with clip_norm=null" if unused[0] == "clip_norm" else ""}
            raise PydanticCustomError("privacy", what, context)
        return self

    def tokens_for(self, policy: "Policy") -> int:
        """Tokens in one forward pass of a policy, where it is."""
        device = next(policy.parameters()).device
        return self.tokens_at_a_time(device.type, policy.kept_bytes, policy.room_bytes)

    def tokens_at_a_time(self, device_type: str, kept_bytes: int | None, room_bytes: int = ROOM) -> int:
        """Tokens in one forward pass on a device, for a model that keeps `kept_bytes` per token, if known, and may keep
        `room_bytes`.
        """
        if self.micro_batch_tokens is not None:
            return self.micro_batch_tokens
        if device_type != "cpu":
            return 16384
        if kept_bytes is None:
            return 4608
        return min(max(room_bytes // kept_bytes, FEWEST), MOST)
