"""A sparse autoencoder of the states after a layer, as the model of a role.

Source: Gao et al. 2024, arXiv:2406.04093, in the form of Resa, arXiv:2506.09967, and of its release (EleutherAI's
sparsify): z = ReLU(W_e (x - b_d) + b_e), of which the k largest are kept, and the reconstruction z W_d + b_d. What is
lost is counted by the fraction of variance unexplained, sum (x - reconstruction)^2 / sum (x - mean)^2 over a batch.
Fewer than k latents are active where fewer than k are positive.

R states, D width, H latents.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import PositiveInt, TypeAdapter
from torch import Tensor, nn
from torch.nn import functional

from posttrain.component import frozen
from posttrain.errors import UserError
from posttrain.errors.foreign import guard
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import Folder, Origin, write_folder
from posttrain.signals import Signal

MODEL_TYPE = "posttrain_sparse_coder"


@frozen
class Sizes:
    """Sizes of a sparse autoencoder."""

    width: PositiveInt
    """Numbers of a state."""
    latents: PositiveInt
    k: PositiveInt
    """Most latents that are active at a time."""


class SparseCoder(Policy):
    """Codes and reconstructs states; it writes nothing, and gives no signal of tokens."""

    GIVES: ClassVar[Mapping[str, frozenset[Signal]]] = {"language": frozenset()}
    called: ClassVar[str] = "sparse autoencoder"
    writes: ClassVar[bool] = False

    def __init__(self, role: str, sizes: Sizes, origin: Origin | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.role, self.sizes, self.head, self.version = role, sizes, "language", 0
        config = {"model_type": MODEL_TYPE, "dtype": "float32", "sparse_coder": vars(sizes)}
        encoded = (json.dumps(config, indent=2) + "\n").encode()
        self.origin = origin or Origin(source="", config=encoded, stored={}, carried={})
        drawn_HD = torch.rand(sizes.latents, sizes.width, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        self.encoder = nn.Parameter(drawn_HD * sizes.width**-0.5)
        self.encoder_bias = nn.Parameter(torch.zeros(sizes.latents))
        self.decoder = nn.Parameter(self.encoder.detach().clone())
        self.decoder_bias = nn.Parameter(torch.zeros(sizes.width))
        self.normalize()

    @property
    def context(self) -> int:
        """Unlimited: states are coded one by one."""
        return 1 << 30

    def forward(self, state_RD: Tensor) -> Tensor:
        """[R, D] (or [N, L, D]) reconstructions of states, in their type."""
        x_RD = state_RD.flatten(0, -2).to(self.decoder.dtype)
        kept_RK = functional.linear(x_RD - self.decoder_bias, self.encoder, self.encoder_bias).relu().topk(self.sizes.k)
        sum_RD = functional.embedding_bag(kept_RK.indices, self.decoder, per_sample_weights=kept_RK.values, mode="sum")
        found: Tensor = (sum_RD + self.decoder_bias).view_as(state_RD).to(state_RD.dtype)
        return found

    def unexplained(self, state_RD: Tensor) -> Tensor:
        """Fraction of the variance of states that is not in their reconstructions; differentiable.

        Raises `UserError` where all states are equal.
        """
        variance = (state_RD - state_RD.mean(0)).square().sum()
        if not float(variance) > 0.0:
            raise UserError("the states that a sparse autoencoder learns from are all equal; give it more tokens")
        lost: Tensor = (state_RD - self(state_RD)).square().sum()
        return lost / variance

    @torch.no_grad()
    def normalize(self) -> None:
        """Bring the rows of the decoder to norm 1."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True) + torch.finfo(self.decoder.dtype).eps)

    def copied(self, role: str, model: Model) -> "SparseCoder":
        """A copy."""
        _check(model)
        made = copy.deepcopy(self)
        made.role = role
        return made

    def save(self, folder: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        write_folder(folder, self.state_dict(), self.origin)


def is_sparse_coder(folder: Folder) -> bool:
    """Whether a model folder holds a sparse autoencoder."""
    return bool(folder.config.get("model_type") == MODEL_TYPE)


def open_sparse_coder(role: str, model: Model, folder: Folder) -> SparseCoder:
    """Read a sparse autoencoder. Raises `UserError` for tensors that do not fit its config."""
    _check(model)
    place = f"'{folder.path / 'config.json'}'"
    with guard(f"{place}: 'sparse_coder' has no sizes of one"):
        sizes = TypeAdapter(Sizes).validate_python(folder.config["sparse_coder"])
    if folder.shapes.get("encoder") != (sizes.latents, sizes.width) or sizes.k > sizes.latents:
        raise UserError(f"{place}: the sizes of 'sparse_coder' do not fit the weights beside it")
    tensors = dict(folder.tensors())
    origin = Origin(
        source=str(folder.path.resolve()),
        config=folder.config_bytes,
        stored={name: tensor.dtype for name, tensor in tensors.items()},
        carried={},
    )
    coder = SparseCoder(role, sizes, origin)
    with guard(f"the weights of '{folder.path}' do not fit its config"):
        coder.load_state_dict(tensors)
    return coder


def _check(model: Model) -> None:
    """Raise `UserError` for settings of language models."""
    if model.head != "language" or model.lora is not None or model.context is not None:
        raise UserError("a sparse autoencoder has no head, no lora and no context; leave them out")
