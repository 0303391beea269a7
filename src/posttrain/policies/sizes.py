"""Sizes of a model from the headers of its files, GGUF or safetensors, before anything of it is loaded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.models.sources import find_model
from posttrain.policies.comet import comet_shapes, is_comet
from posttrain.policies.folder import Folder, bundled, bundled_names
from posttrain.policies.gguf.reading import open_model
from posttrain.policies.lora import base_of, is_adapter


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """How large a model is."""

    parameters: int
    """Number of stored weights."""
    largest: int
    """Number of weights of its largest tensor."""
    layers: int
    width: int
    heads: int
    """Width of all queries of a token."""
    kv_heads: int
    """Width of all keys of a token."""
    mlp_width: int
    vocabulary: int
    context: int
    """Longest sequence in tokens; 0 where the config does not say."""
    normed: bool = False
    """Whether heads have norms."""
    adapted: int = 0
    """Sum of inputs and outputs of the projections that LoRA adapts by default: weights of an adapter of rank 1."""


def size_of(model: Model, role: str = "policy") -> ModelSize | None:
    """The size of a model of a folder or a GGUF file; None for a new one or an endpoint.

    Raises `UserError` for what is no model, and for a GGUF file where its library is not installed.
    """
    if model.is_remote or model.source in ("new", "made") or model.source.startswith("role:"):
        return None
    path = bundled(model.source) if model.source in bundled_names() else find_model(model.source, role)
    if path.is_dir() and is_adapter(path):
        path = base_of(path, model)
    read, named = comet_shapes(path, model) if is_comet(path) else _stored(open_model(path))
    config, shapes = _text_config(read), named.values()
    width, queries = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    head = _number(config, "head_dim") or (width // queries if queries else 0)
    targets = [shape for name, shape in named.items() if name.endswith("_proj.weight") and len(shape) == 2]
    return ModelSize(
        parameters=sum(math.prod(shape) for shape in shapes),
        largest=max((math.prod(shape) for shape in shapes), default=0),
        layers=_number(config, "num_hidden_layers"),
        width=width,
        heads=queries * head,
        kv_heads=(_number(config, "num_key_value_heads") or queries) * head,
        mlp_width=_number(config, "intermediate_size"),
        vocabulary=_number(config, "vocab_size"),
        context=min(_number(config, "max_position_embeddings"), model.context or 2**62),
        normed=any(name.endswith("q_norm.weight") for name in named),
        adapted=sum(map(sum, targets)),
    )


def trained_size(role: str, models: "dict[str, Model]") -> ModelSize | None:
    """The size of a role's model; a copy has that of the role that it copies. None as in `size_of`."""
    seen = {role}
    model = models.get(role)
    while model is not None and model.source.startswith("role:"):
        name = model.source.removeprefix("role:")
        model = models.get(name) if name not in seen else None
        seen.add(name)
    if model is None:
        return None
    try:
        return size_of(model, role)
    except UserError as error:
        raise UserError(f"models.{role}: {error}") from None


def _stored(folder: Folder) -> tuple[dict[str, Any], Mapping[str, tuple[int, ...]]]:
    """The config, and the shape of every tensor by name."""
    return folder.config, folder.shapes


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the language model in a config, which some kinds keep one level down."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _number(config: dict[str, Any], name: str) -> int:
    """A whole number of a config; 0 where there is none. Loading refuses what is no number."""
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
