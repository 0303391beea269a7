"""The layers and parameters of the native decoder.

RMSNorm, rotary positions (with the scaling that the config names), grouped-query attention, query and key norms
(Qwen3), biases (Qwen2), SwiGLU. Parameters have the names of Hugging Face checkpoints.

R rows (L tokens, and padding up to a multiple of 16), D width, H query heads, K key-value heads, d width of a head.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from posttrain import kernels
from posttrain.datasets.latents import STEP
from posttrain.kernels import layers
from posttrain.policies import Body, Packed
from posttrain.policies._attention import Attends
from posttrain.policies._memory import recomputed
from posttrain.policies._shape import Shape, Vision


class Attention(nn.Module):
    """Grouped-query self-attention."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = shape.head_dim
        heads, kv_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.width, heads, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(shape.width, kv_heads, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(shape.width, kv_heads, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(heads, shape.width, bias=shape.o_bias)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.norm_eps) if shape.qk_norm else nn.Identity()

    def forward(self, x_RD: Tensor, rotation: tuple[Tensor, Tensor], attend: Attends) -> Tensor:
        """[R, D] from [R, D]."""
        query, key, value = (
            project(x_RD).unflatten(1, (-1, self.head_dim)) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = kernels.rotate(query, self.q_norm, rotation), kernels.rotate(key, self.k_norm, rotation)
        output: Tensor = self.o_proj(attend(self.layer, query, key, value))
        return output


class MLP(nn.Module):
    """SwiGLU. Shazeer 2020, arXiv:2002.05202."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.mlp_width, bias=shape.mlp_bias)
        self.up_proj = nn.Linear(shape.width, shape.mlp_width, bias=shape.mlp_bias)
        self.down_proj = nn.Linear(shape.mlp_width, shape.width, bias=shape.mlp_bias)

    def forward(self, x_RD: Tensor) -> Tensor:
        """[R, D] from [R, D]."""
        output: Tensor = self.down_proj(kernels.gated(self.gate_proj(x_RD), self.up_proj(x_RD)))
        return output


class Layer(nn.Module):
    """Attention and MLP, each after a norm and with a residual connection."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(shape, layer)
        self.mlp = MLP(shape)
        self.input_layernorm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, shape.norm_eps)
        self.watched = False
        """Whether a hook reads the inputs of its modules, so that all of them are called."""

    def forward(
        self,
        x_RD: Tensor,
        delta_RD: Tensor | None,
        rotation: tuple[Tensor, Tensor],
        attend: Attends,
        *,
        twice: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The residual stream and what is to be added to it, from the same of the layer before.

        The addition is left to the next norm, which reads the sum anyway. `twice` computes the layer again for the
        backward pass: inside the module, so that what gathers its weights for a pass does so once for both.
        """
        if not twice:
            return self._once(x_RD, delta_RD, rotation, attend)
        x_RD, delta_RD = recomputed(partial(self._once, rotation=rotation, attend=attend), x_RD, delta_RD)
        return x_RD, delta_RD

    def _once(
        self, x_RD: Tensor, delta_RD: Tensor | None, rotation: tuple[Tensor, Tensor], attend: Attends
    ) -> tuple[Tensor, Tensor]:
        if not self.watched and layers.covered(x_RD, self.linears, self.norms):
            return self._by_rows(x_RD, delta_RD, rotation, attend)
        if delta_RD is None:
            normed_RD = kernels.norm(x_RD, self.input_layernorm)
        else:
            x_RD, normed_RD = kernels.add_norm(x_RD, delta_RD, self.input_layernorm)
        delta_RD = self.self_attn(normed_RD, rotation, attend)
        x_RD, normed_RD = kernels.add_norm(x_RD, delta_RD, self.post_attention_layernorm)
        return x_RD, self.mlp(normed_RD)

    def _by_rows(
        self, x_RD: Tensor, delta_RD: Tensor | None, rotation: tuple[Tensor, Tensor], attend: Attends
    ) -> tuple[Tensor, Tensor]:
        """The same by kernels that take a few rows through all that is before attention, and all that is after it."""
        (input_norm, attention_norm, *head_norms), (*projections, output, gate, up, down) = self.norms, self.linears
        x_RD, query, key, value = layers.before_attention(
            x_RD, delta_RD, input_norm, projections, head_norms, self.self_attn.head_dim, rotation
        )
        attended_RA = attend(self.self_attn.layer, query, key, value)
        return layers.after_attention(x_RD, attended_RA, output, attention_norm, (gate, up, down))

    @property
    def linears(self) -> tuple[nn.Linear, ...]:
        """Queries, keys, values and output, then the MLP's gate, up and down projections.

        Adapters may have taken the place of any.
        """
        attention, mlp = self.self_attn, self.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        return (*projections, mlp.gate_proj, mlp.up_proj, mlp.down_proj)

    @property
    def norms(self) -> tuple[nn.RMSNorm, nn.RMSNorm, nn.Module, nn.Module]:
        """Before attention, before the MLP, of queries and of keys."""
        attention = self.self_attn
        return self.input_layernorm, self.post_attention_layernorm, attention.q_norm, attention.k_norm


class Transformer(nn.Module):
    """Embedding, layers and last norm: what checkpoints call ``model``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        # Drawing random numbers for a tensor without memory would import torch's compiler: two seconds.
        weight = torch.empty(shape.vocabulary_size, shape.width)
        self.embed_tokens: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=False)  # type: ignore[no-untyped-call]
        self.layers = nn.ModuleList(Layer(shape, layer) for layer in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)


class Projector(nn.Module):
    """Patches of images to what is added to their input embeddings: linear, from the pixels themselves.

    There is no bias, so that the vector of a token without one, 0, adds nothing.
    """

    def __init__(self, shape: Vision, width: int) -> None:
        super().__init__()
        self.pixels = shape.pixels
        self.patch = nn.Linear(shape.pixels, width, bias=False)
        self.place = nn.Linear(2 * shape.grid, width, bias=False)

    def forward(self, vectors_RD: Tensor) -> Tensor:
        """[R, D] from vectors as `posttrain.policies._prompts` makes them: pixels, then row and column."""
        output: Tensor = self.patch(vectors_RD[:, : self.pixels]) + self.place(vectors_RD[:, self.pixels :])
        return output


class LatentInputs(nn.Module):
    """Input embeddings in which latent steps (`posttrain.datasets.latents`) have the place of tokens."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x_RD: Tensor, vectors_RV: Tensor) -> Tensor:
        """[R, D] from the embeddings of the tokens."""
        return torch.where(vectors_RV[:, :1] == STEP, vectors_RV[:, 1:] * self.scale, x_RD)


class Steers(Protocol):
    """What shifts the states after the last norm (`posttrain.policies.controllers`)."""

    def packed(self, hidden_LD: Tensor, packed: Packed) -> Tensor:
        """[L, D] shifted states of whole sequences."""
        ...

    def extended(self, notes: dict[int, object], slots: Sequence[int], packed: Packed, hidden_LD: Tensor) -> Tensor:
        """[B, D] shifted states of the last tokens of sequences in a cache, with its notes by slot."""
        ...


class DecoderModules(Body):
    """A decoder's parameters, and the angles of its positions: what every way of running it reads."""

    def __init__(self, shape: Shape, *, context: int | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.width = shape.width
        self.vocabulary_size = shape.vocabulary_size
        self.context = context or shape.context
        assert self.context <= shape.context, "no model is run beyond its limit"
        self.model = Transformer(shape)
        if not shape.tied:
            self.lm_head = nn.Linear(shape.width, shape.vocabulary_size, bias=False)
        if shape.vision is not None:
            self.vision = Projector(shape.vision, shape.width)
            self.vector_width = shape.vision.vector_width
        self.latents: LatentInputs | None = None
        self.steers: Steers | None = None
        self.recomputes_layers = False
        self._frequencies, self._rotation_scale = shape.rope.frequencies(shape.head_dim, shape.context)
        self._rotations: tuple[Tensor, Tensor] | None = None

    def rotations(self, longest: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine, float32 [P, d / 2], of at least the first `longest` positions."""
        table = self._rotations
        if table is None or len(table[0]) < longest or table[0].device != device:
            length = min(self.context, 1 << (longest - 1).bit_length())
            angles = torch.outer(torch.arange(length).float(), self._frequencies)
            cosine, sine = ((f(angles) * self._rotation_scale).to(device) for f in (torch.cos, torch.sin))
            table = self._rotations = cosine, sine
        return table
