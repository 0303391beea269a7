"""A projection of a language model's last states, and the values that are read from it.

Source: the head of CARFT, arXiv:2508.15868, and of its released code: e = W h + b, in 64 numbers, and
v = w ReLU(e) + c, which is both the critic's value of the state and the weight of its embedding in that of a text.

Differs: no dropout of the states (0.1 in the release), since models here are evaluated as they are sampled.
"""

from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, shown
from posttrain.policies.folder import open_weights, stored_shapes
from posttrain.signals import EMBEDDING, IN_SHOWN, SCORE, SHOWN, SHOWN_ONLY, VALUE, Signal

PROJECTION: Final = "projection_head.safetensors"
"""Its file in a model's folder."""
GIVEN: Final[frozenset[Signal]] = frozenset({EMBEDDING, SCORE, VALUE, SHOWN, SHOWN_ONLY, IN_SHOWN})
"""The signals that it gives."""


class Projection(nn.Module):
    """Embeddings of states, and values; values begin at 0."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Linear(inputs, width, device="meta", dtype=torch.float32).to_empty(device="cpu")
        self.value = nn.Linear(width, 1, device="meta", dtype=torch.float32).to_empty(device="cpu")
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.embed.weight.copy_(torch.randn(width, inputs, generator=generator) * inputs**-0.5)
        for zero in (self.embed.bias, self.value.weight, self.value.bias):
            nn.init.zeros_(zero)

    def forward(self, hidden_TD: Tensor) -> tuple[Tensor, Tensor]:
        """[T, E] embeddings and [T] values of states; a row depends on no other one."""
        embedding_TE = self.embed(hidden_TD.to(self.embed.weight.dtype))
        value_T = (torch.relu(embedding_TE) * self.value.weight[0]).sum(-1) + self.value.bias
        return embedding_TE, value_T


def read_projection(path: Path, inputs: int, width: int) -> Projection:
    """The projection that was saved with a model, or a new one. Raises `UserError` for one of another width."""
    head = Projection(inputs, width)
    if not path.is_file():
        return head
    stored, wanted = stored_shapes(path), {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    if stored != wanted:
        raise UserError(f"the projection '{path}' has the tensors {shown(stored)}, and this model needs {wanted}")
    with open_weights(file_in(path.parent, path.name)) as file, guard(f"the projection '{path}' is damaged"):
        head.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return head
