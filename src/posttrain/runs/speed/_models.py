"""Random models whose completions end with a given probability, for benchmarks.

Random models of the usual kind give every token about the same probability. Here one entry of the hidden state is the
same at every place, and the end token's embedding has its own value there: so its logit is moved by a constant, in an
ordinary folder that any program loads, and completions have geometric lengths, or never end.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.policies import Packed
from posttrain.policies._byte_tokenizer import (
    END_TOKEN_ID,
    PAD_TOKEN_ID,
    VOCABULARY_SIZE,
    write_byte_tokenizer,
)
from posttrain.policies._shape import Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import new_folder
from posttrain.runs.speed.sizes import Size

NEVER = -30.0
"""Logit of the end token of a model that never ends: a probability of 1e-15."""
CONTEXT = 512
_STEADY, _GAIN = 0.5, 2.0
"""What every embedding has in its first entry, and what the last norm makes of it. A smaller entry, made larger by the
norm, would be moved about by the first updates, and the lengths with it."""
_EMBEDDING, _NORM = "model.embed_tokens.weight", "model.norm.weight"


def make_model(path: Path, size: Size, end_probability: float, seed: int = 0) -> Path:
    """Write a folder, unless it is there."""
    if (path / "model.safetensors").is_file():
        return path
    if size.family == "qwen3":
        new_folder(
            path,
            layers=size.layers,
            width=size.width,
            heads=size.heads,
            kv_heads=size.kv_heads,
            mlp_width=size.mlp_width,
            context=CONTEXT,
            seed=seed,
        )
    else:
        _write_large(path, size, seed)
    steer_end(path, end_probability, seed)
    return path


def steer_end(path: Path, probability: float, seed: int = 0) -> None:
    """Change a folder's weights so that the mean probability of the end token is as given (0: it never ends)."""
    weights = load_file(path / "model.safetensors")
    embedding = weights[_EMBEDDING]
    embedding[:, 0] = _STEADY
    weights[_NORM][0] = _GAIN
    for name, tensor in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor[0] = 0.0  # nothing writes to the first entry after the embedding
    config = json.loads((path / "config.json").read_text())
    hidden, logits = _look(config, weights, seed)
    steady = float(hidden[:, 0].mean())
    embedding[VOCABULARY_SIZE:, 0] += NEVER / steady  # tokens without text: rewards of texts of them would all be 0
    logits[:, VOCABULARY_SIZE:] += NEVER
    moved = float(embedding[END_TOKEN_ID, 0])
    if probability:
        wanted = _shift_to(logits, probability)
        embedding[END_TOKEN_ID, 0] = moved + wanted / steady
    else:
        embedding[END_TOKEN_ID, 0] = moved + NEVER / steady
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def _look(config: dict[str, Any], weights: dict[str, Tensor], seed: int) -> tuple[Tensor, Tensor]:
    """Hidden states and logits at the places of a few texts: letters, like the prompts, then anything."""
    with torch.device("meta"):
        body = Decoder(Shape.from_config(config))
    body.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    texts = [(rng.integers(ord("a"), ord("z") + 1, 48), rng.integers(0, 256, 48)) for _ in range(4)]
    ids = np.concatenate([part for text in texts for part in text])
    starts = tuple(range(0, len(ids) + 1, 96))
    with torch.no_grad():
        hidden = body.hidden(Packed(token_ids_L=torch.from_numpy(ids), starts=starts))
        return hidden, body.logits(hidden)


def _shift_to(logits: Tensor, probability: float) -> float:
    """What to add to the end token's logit so that its mean probability is as given."""
    others = logits.clone()
    others[:, END_TOKEN_ID] = -math.inf
    odds = logits[:, END_TOKEN_ID] - others.logsumexp(1)
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        below = float(torch.sigmoid(odds + middle).mean()) < probability
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def _write_large(path: Path, size: Size, seed: int) -> None:
    """A folder of the shape of Qwen2.5, in bfloat16, or of SmolLM2; tokens beyond the tokenizer's have no text."""
    path.mkdir(parents=True, exist_ok=True)
    write_byte_tokenizer(path)
    qwen2 = size.family == "qwen2"
    config = {
        "architectures": ["Qwen2ForCausalLM" if qwen2 else "LlamaForCausalLM"],
        "model_type": size.family,
        "vocab_size": size.vocabulary,
        "hidden_size": size.width,
        "intermediate_size": size.mlp_width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6 if qwen2 else 1e-5,
        "rope_theta": 1e6 if qwen2 else 1e5,
        "tie_word_embeddings": True,
        "eos_token_id": END_TOKEN_ID,
        "pad_token_id": PAD_TOKEN_ID,
        "dtype": "bfloat16" if qwen2 else "float32",
    }
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    with torch.device("meta"):
        wanted = Decoder(Shape.from_config(config)).state_dict()
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, like in wanted.items():
        made = torch.zeros(like.shape) if name.endswith("bias") else torch.ones(like.shape)
        if like.dim() == 2:
            std = 0.02 if "embed" in name else like.shape[1] ** -0.5
            made = torch.randn(like.shape, generator=generator) * std
        weights[name] = made.to(torch.bfloat16) if qwen2 else made
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
