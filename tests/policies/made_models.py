"""Tiny models made on the spot with transformers, and what tests do with them."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.models import Model
from posttrain.policies import Body, Packed
from posttrain.policies._byte_tokenizer import VOCABULARY_SIZE, write_byte_tokenizer
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 257,
    "pad_token_id": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
MSCALE = YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2, "truncate": False}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3 tied": ("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3 biases": ("Qwen3Config", {"head_dim": 16, "attention_bias": True}),
    "qwen3 linear rope": ("Qwen3Config", {"head_dim": 16, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "qwen3 yarn": ("Qwen3Config", {"head_dim": 16, "rope_scaling": YARN}),
    "qwen2": ("Qwen2Config", {"rope_theta": 1e6}),
    "qwen2 tied": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen2 window that is off": ("Qwen2Config", {"use_sliding_window": False, "sliding_window": 16}),
    "qwen2 yarn with mscale": ("Qwen2Config", {"rope_scaling": MSCALE}),
    "llama": ("LlamaConfig", {}),
    "llama one key head": ("LlamaConfig", {"num_key_value_heads": 1, "head_dim": 24}),
    "llama as many key heads": ("LlamaConfig", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama llama3 rope": ("LlamaConfig", {"rope_scaling": LLAMA3}),
    "llama dynamic rope": ("LlamaConfig", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
}
"""Shapes that run natively: the name of a config class of transformers, and what differs from `SIZES`."""


def make_folder(
    path: Path,
    config: str,
    settings: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Path:
    """Save a random model of transformers, with weights large enough that every part of it matters."""
    import transformers

    sizes = SIZES | (settings or {})
    with torch.random.fork_rng(devices=[]):  # what is made of one dimension (Mamba's time steps) keeps its values
        torch.manual_seed(seed)
        model: Any = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**sizes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.15 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    model.to(dtype).save_pretrained(path)
    write_byte_tokenizer(path)
    return path


def transformers_logits(path: Path, sequences: Sequence[Tensor]) -> Tensor:
    """[L, V] logits of packed sequences, each computed alone by transformers."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.cat([model(input_ids=ids[None]).logits[0] for ids in sequences])


def load(path: Path, **settings: Any) -> LanguageModelPolicy:
    policy = load_policy("policy", Model(source=str(path), **settings), {}, CPU)
    assert isinstance(policy, LanguageModelPolicy)
    return policy


def random_sequences(*lengths: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (length,), generator=generator) for length in lengths]


def pack(sequences: Sequence[Tensor]) -> Packed:
    return Packed(token_ids_L=torch.cat(list(sequences)), starts=(0, *accumulate(map(len, sequences))))


def packed_logits(body: Body, sequences: Sequence[Tensor]) -> Tensor:
    with torch.no_grad():
        return body.logits(body.hidden(pack(sequences)))


def sampled_states(
    body: Body, sequences: Sequence[Tensor], prompts: Sequence[int], *, slots: Sequence[int] | None = None
) -> list[Tensor]:
    """For each sequence, [T + 1, D] states of its prompt's last token and of every token after it.

    All prompts go in with one call; then every sequence that is not over takes one token a call, as a sampler does.
    """
    slots = slots or range(len(sequences))
    cache = body.new_cache(max(slots) + 1, 8)
    states = [
        [state] for state in body.extend(cache, slots, pack([s[:p] for s, p in zip(sequences, prompts, strict=True)]))
    ]
    place = list(prompts)
    while going := [i for i, ids in enumerate(sequences) if place[i] < len(ids)]:
        new = pack([sequences[i][place[i] : place[i] + 1] for i in going])
        for i, state in zip(going, body.extend(cache, [slots[i] for i in going], new), strict=True):
            states[i].append(state)
            place[i] += 1
    return [torch.stack(rows) for rows in states]


def assert_same_whatever_is_beside(compute: Callable[[list[Tensor]], list[Tensor]], sequences: list[Tensor]) -> None:
    """Every sequence gives the same bits alone, in any company and in any order."""
    together = compute(sequences)
    backwards = compute(sequences[::-1])[::-1]
    for i, ids in enumerate(sequences):
        assert torch.equal(compute([ids])[0], together[i])
        assert torch.equal(backwards[i], together[i])
