"""The architecture of a model in a GGUF file: its ``config.json``, and the names and rows that its tensors have there.

Differs from the file in the rows of queries and keys of Llama: they are stored so that the two numbers of a rotated
pair are neighbours, and a model folder has them half a head apart.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.errors.foreign import shown
from posttrain.policies._shape import NATIVE_TYPES, Rope, Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.gguf.container import Container, library

ROPE_TENSOR = "rope_freqs.weight"
"""What the frequencies of Llama 3.1 and later are divided by, one number for each pair of dimensions."""
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_READ = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.finetuned", "vocab_size",
)  # fmt: skip
_NEUTRAL = {
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "attention.sliding_window": 0,
    "attention.max_alibi_bias": 0,
    "attention.clamp_kqv": 0,
    "pooling_type": 0,
    "use_parallel_residual": False,
    "logit_scale": 1,
    "residual_scale": 1,
    "embedding_scale": 1,
}
"""Settings that the decoder does not have, each with the value at which they change nothing."""
_SCALINGS = {"none": "default", "linear": "linear", "yarn": "yarn"}


def read_config(container: Container) -> dict[str, Any]:
    """The ``config.json`` of the model. Raises `UserError` for what the native decoder does not compute."""
    where, metadata, tensors = f"'{container.path}'", container.metadata, container.entries
    kind = metadata.get("general.architecture")
    if metadata.get("split.count", 1) not in (0, 1):
        raise UserError(
            f"{where} is one of {shown(metadata['split.count'], 20)} files of a split model; join them to one first "
            "(gguf-split --merge of llama.cpp)"
        )
    if kind not in NATIVE_TYPES:
        raise UserError(
            f"{where} holds a model of the architecture {shown(repr(kind), 60)}, which is not read from GGUF (read "
            f"are {', '.join(NATIVE_TYPES)}); take the model's Hugging Face folder with safetensors instead"
        )
    given = {k.removeprefix(f"{kind}."): v for k, v in metadata.items() if k.startswith(f"{kind}.")}
    for name, value in given.items():
        if name not in _READ and (name not in _NEUTRAL or value != _NEUTRAL[name]):
            raise UserError(
                f"{where}: {kind}.{shown(name, 60)} is {shown(repr(value), 60)}, a setting that the decoder does not "
                "have; the model would compute something else without it"
            )
    _check_numbers(where, kind, given, len(tensors))
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise UserError(f"{where} has no embedding of tokens (token_embd.weight), so it is not a whole language model")
    heads, width = given["attention.head_count"], given["embedding_length"]
    head_dim = given.get("attention.key_length", width // heads)
    config: dict[str, Any] = {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "vocab_size": embedding.shape[0],
        "hidden_size": width,
        "intermediate_size": given["feed_forward_length"],
        "num_hidden_layers": given["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": given.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": given["context_length"],
        "rms_norm_eps": _decimal(given["attention.layer_norm_rms_epsilon"]),
        "rope_theta": _decimal(given.get("rope.freq_base", 10_000.0)),
        "attention_bias": kind != "qwen2" and "blk.0.attn_q.bias" in tensors,
        **({"mlp_bias": "blk.0.ffn_up.bias" in tensors} if kind == "llama" else {}),
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }
    for name, ours in (("attention.value_length", head_dim), ("rope.dimension_count", head_dim)):
        if given.get(name, ours) != ours:
            raise UserError(
                f"{where}: {kind}.{name} is {shown(given[name], 40)} and heads have {head_dim} dimensions; the decoder "
                "computes with as many of each"
            )
    scaling = _scaling(where, kind, given)
    return config | ({"rope_scaling": scaling} if scaling else {}) | _llama3(container, config)


def stored_names(container: Container, config: Mapping[str, Any]) -> dict[str, str]:
    """The name in the file of every tensor, by its name in a model folder. Raises `UserError` for unknown tensors."""
    shape = Shape.from_config(config)
    with torch.device("meta"):
        wanted = Decoder(shape).state_dict()
    architecture = {name: number for number, name in library().MODEL_ARCH_NAMES.items()}[shape.model_type]
    names = library().get_tensor_name_map(architecture, shape.layers)
    ours = {names.get_name(name, try_suffixes=(".weight", ".bias")): name for name in wanted}
    odd = [name for name in container.entries if name not in ours and name != ROPE_TENSOR]
    if odd:
        raise UserError(
            f"'{container.path}' holds a tensor '{shown(odd[0], 100)}' that a {shape.model_type} model of "
            f"{shape.layers} layers has no place for"
        )
    return {ours[name]: name for name in container.entries if name in ours}


def folder_rows(tensor: Tensor, name: str, config: Mapping[str, Any]) -> Tensor:
    """A tensor with its rows in the order of a model folder, by its name there."""
    kinds = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    part = name.split(".")[-2]
    if config["model_type"] != "llama" or part not in kinds:
        return tensor
    pairs = tensor.view(config[kinds[part]], -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)


def _check_numbers(where: str, kind: str, given: Mapping[str, Any], tensors: int) -> None:
    """Raise `UserError` for sizes that are missing, no positive whole numbers, or more layers than tensors."""
    for name in _READ[:8]:
        optional = name in ("attention.head_count_kv", "attention.key_length", "attention.value_length")
        value = given.get(name)
        if value is None and not optional:
            raise UserError(f"{where} does not give {kind}.{name}; it is not a whole model")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UserError(
                f"{where}: {kind}.{name} is {shown(repr(value), 60)}; the decoder needs one whole number above 0, the "
                "same for every layer"
            )
    for name in ("attention.layer_norm_rms_epsilon", "rope.freq_base"):
        value = given.get(name, 10_000.0 if name == "rope.freq_base" else None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{where}: {kind}.{name} is {shown(repr(value), 60)}; it is a number")
    if given["block_count"] > tensors:
        raise UserError(
            f"{where}: {kind}.block_count is {shown(given['block_count'], 40)}, but the file holds {tensors} tensors"
        )


def _decimal(value: float) -> float:
    """A 32-bit number as the shortest decimal that it stands for: 1e-05, not 9.999999747378752e-06."""
    with np.errstate(all="ignore"):
        return float(str(np.float32(value)))


def _scaling(where: str, kind: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Scaling of positions as ``rope_scaling`` has it; None for none."""
    name = given.get("rope.scaling.type", "none")
    if name not in _SCALINGS:
        raise UserError(
            f"{where}: {kind}.rope.scaling.type is {shown(repr(name), 40)}; read are {', '.join(_SCALINGS)}"
        )
    if name == "none":
        return None
    keys = {"factor": "factor", "original_context_length": "original_max_position_embeddings"}
    if name == "yarn":
        keys |= {"attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    read = {ours: given[f"rope.scaling.{key}"] for key, ours in keys.items() if f"rope.scaling.{key}" in given}
    return {"rope_type": _SCALINGS[name]} | {
        key: _decimal(value) if isinstance(value, float) else value for key, value in read.items()
    }


def _llama3(container: Container, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of Llama 3.1's scaling, which a file has as a tensor only; nothing where it has none.

    The factor is the largest of its numbers, the other settings are those of all published models. Raises `UserError`
    where these settings do not give the numbers in the file.
    """
    if ROPE_TENSOR not in container.entries:
        return {}
    divided = container.tensor(ROPE_TENSOR).float()
    settings = {
        "rope_type": "llama3",
        "factor": float(divided.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    Shape.from_config({**config, "rope_scaling": settings})  # refuses heads and numbers that give no frequencies
    head_dim, context = config["head_dim"], config["max_position_embeddings"]
    plain, _ = Rope(type="default", theta=config["rope_theta"], settings={}).frequencies(head_dim, context)
    scaled, _ = Rope(type="llama3", theta=config["rope_theta"], settings=settings).frequencies(head_dim, context)
    if divided.shape != plain.shape or not torch.allclose(plain / divided, scaled, rtol=1e-4):
        raise UserError(
            f"'{container.path}': its {ROPE_TENSOR} is not the scaling of positions of Llama 3.1 to 3.3, the only one "
            "that is read from a tensor"
        )
    return {"rope_scaling": settings}
