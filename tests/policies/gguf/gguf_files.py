"""GGUF files made of model folders, with the writer of the library."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from torch import Tensor

from posttrain.policies.folder import new_folder

TYPES = {"special": 3, "added": 4, "other": 1}


def small_folder(path: Path, architecture: Any = "llama", **settings: Any) -> Path:
    """A random model whose every weight matters, with rows that fill the blocks of quantized types."""
    sizes = {"layers": 2, "width": 64, "heads": 2, "kv_heads": 1, "mlp_width": 96} | settings
    return new_folder(path, architecture=architecture, **sizes)


def stored_rows(tensor: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys in the order of Llama's GGUF files: row i of a head's first half, row i of its second."""
    half = len(tensor) // heads // 2
    order = [h * 2 * half + part * half + i for h in range(heads) for i in range(half) for part in range(2)]
    return tensor[order]


def write_gguf(
    path: Path,
    folder: Path,
    kind: Kind = Kind.F32,
    *,
    pre: str = "gpt-2",
    without: tuple[str, ...] = (),
    more: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    change: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> Path:
    """Write a model folder as a GGUF file; matrices are of the given type."""
    config = json.loads((folder / "config.json").read_text())
    arch = config["model_type"]
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
    }
    for name, value in numbers.items():
        if name not in without:
            writer.add_uint32(f"{arch}.{name}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_float32(f"{arch}.rope.freq_base", (config.get("rope_parameters") or config)["rope_theta"])
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), pre, without)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])
    more(writer)
    names = gguf.get_tensor_name_map(
        {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[arch], config["num_hidden_layers"]
    )
    for name, tensor in load_file(folder / "model.safetensors").items():
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        part = name.split(".")[-2]
        rows = stored_rows(tensor, heads[part]) if arch == "llama" and part in heads else tensor
        own = change(name, rows).float().numpy()
        of = kind if own.ndim > 1 else Kind.F32
        stored = gguf.quantize(own, of) if of is not Kind.F16 else own.astype("float16")
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")) or name, stored, raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Mapping[str, Any], pre: str, without: tuple[str, ...]) -> None:
    """The metadata of a ``tokenizer.json``."""
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    texts |= {number: token["content"] for number, token in added.items()}
    writer.add_tokenizer_model("gpt2")
    if "pre" not in without:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([texts[number] for number in range(len(texts))])
    kinds = ["other" if n not in added else "special" if added[n]["special"] else "added" for n in range(len(texts))]
    writer.add_token_types([TYPES[kind] for kind in kinds])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    ends = [number for number, token in added.items() if token["content"] in ("<|end|>", "<|im_end|>")]
    writer.add_eos_token_id(ends[0])
    writer.add_pad_token_id(min(added))


def logits(policy: Any, *sequences: list[int]) -> Tensor:
    """[L, V] logits of packed sequences."""
    from tests.policies.made_models import pack, packed_logits

    with torch.no_grad():
        ids = [torch.tensor(sequence) for sequence in sequences]
        assert len(pack(ids).token_ids_L) == sum(map(len, sequences))
        return packed_logits(policy.body, ids)
