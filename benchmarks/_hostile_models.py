"""Hostile model folders: every case that was ever met badly, and its relatives, by class.

A case changes valid files of the working folder (`tiny`, a model) and gives what the command line gets in addition.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._hostile import CONTROL, SECRET, Make, nested, sparse
from benchmarks._hostile_templates import TEMPLATES

CHAT = ("tasks.as_chat=true",)
HUGE = 1 << 40
TINY = Path("tiny")


def _edit(name: str, **values: Any) -> None:
    """Set values of a JSON file of the model."""
    path = TINY / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _linked(name: str) -> Make:
    def make() -> Sequence[str]:
        Path("private").mkdir(exist_ok=True)
        private = Path("private/secret")
        held = TINY / name
        private.write_bytes(held.read_bytes() if held.is_file() else SECRET.encode())
        held.unlink(missing_ok=True)
        held.symlink_to(private.absolute())
        return ["!train"]

    return make


def _index(file_name: Any) -> Make:
    def make() -> Sequence[str]:
        (TINY / "model.safetensors").rename("weights.safetensors")
        shutil.copy("weights.safetensors", TINY / "shard.safetensors")
        names = _header(Path("weights.safetensors"))
        where = str(Path("weights.safetensors").absolute()) if file_name == "absolute" else file_name
        _write_json(TINY / "model.safetensors.index.json", {"weight_map": dict.fromkeys(names, where)})
        return ["!train"]

    return make


def _header(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    header: dict[str, Any] = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    header.pop("__metadata__", None)
    return header


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _adapter(tensors: Mapping[str, Sequence[int]] | None = None, **values: Any) -> Make:
    def make() -> Sequence[str]:
        import torch
        from safetensors.torch import save_file

        folder = Path("adapter")
        folder.mkdir(exist_ok=True)
        shapes = tensors or {"lora_A": (2, 16), "lora_B": (16, 2)}
        prefix = "base_model.model.model.layers.0.self_attn.q_proj"
        save_file(
            {f"{prefix}.{part}.weight": torch.zeros(tuple(shape)) for part, shape in shapes.items()},
            folder / "adapter_model.safetensors",
        )
        settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4.0, "base_model_name_or_path": "base"}
        settings |= {"target_modules": ["q_proj"], "bias": "none"} | values
        shutil.copytree("tiny", folder / "base", dirs_exist_ok=True)
        _write_json(folder / "adapter_config.json", {k: v for k, v in settings.items() if v != "absent"})
        return ["model=adapter"]

    return make


def _template(source: str | bytes, *, big: int = 0) -> Make:
    def make() -> Sequence[str]:
        path = TINY / "chat_template.jinja"
        path.write_bytes(source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass"))
        if big:
            os.truncate(path, big)
        return CHAT

    return make


def _config(**values: Any) -> Make:
    def make() -> Sequence[str]:
        _edit("config.json", **values)
        return ()

    return make


def _transformers(**values: Any) -> Make:
    """A model of an architecture that only transformers has."""

    def make() -> Sequence[str]:
        settings = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2}
        _edit("config.json", **{**settings, "n_positions": 64, **values})
        return ()

    return make


def _file(name: str, content: str | bytes) -> Make:
    def make() -> Sequence[str]:
        (TINY / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return CHAT if "chat_template" in str(content)[:200] else ()

    return make


def _tokenizer(change: Callable[[dict[str, Any]], None]) -> Make:
    def make() -> Sequence[str]:
        path = TINY / "tokenizer.json"
        tree = json.loads(path.read_text())
        change(tree)
        path.write_text(json.dumps(tree))
        return ()

    return make


def _big(name: str, size: int, start: bytes = b"") -> Make:
    def make() -> Sequence[str]:
        sparse(TINY / name, size, start)
        return ["!train"]

    return make


def _weights(rewrite: Callable[[dict[str, Any]], dict[str, Any]]) -> Make:
    def make() -> Sequence[str]:
        from safetensors.torch import load_file, save_file

        path = TINY / "model.safetensors"
        save_file(rewrite(dict(load_file(path))), path)
        return ()

    return make


def _complex(tensors: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.complex(t, torch.ones_like(t)) for name, t in tensors.items()}


def _split(pattern: dict[str, str], text: str = "aaaa") -> Callable[[dict[str, Any]], None]:
    del text

    def change(tree: dict[str, Any]) -> None:
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, tree["pre_tokenizer"]]}
        tree["normalizer"] = {"type": "Replace", "pattern": {"Regex": r"$"}, "content": "a" * 64 + "!"}

    return change


def _wordlevel(tree: dict[str, Any]) -> None:
    tree["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[gone]"}
    tree["added_tokens"] = []


def _unigram(unknown: Any) -> Callable[[dict[str, Any]], None]:
    def change(tree: dict[str, Any]) -> None:
        tree["model"] = {"type": "Unigram", "unk_id": unknown, "vocab": [["a", -1.0], ["b", -2.0]]}
        tree["added_tokens"] = []

    return change


def _yarn(**values: Any) -> Make:
    return _config(rope_scaling={"rope_type": "yarn", "factor": 2.0, **values})


CLASSES: dict[str, dict[str, Make]] = {
    "links out of a model folder": {
        **{name: _linked(name) for name in ("vocab.txt", "tokenizer.model", "config.json", "model.safetensors")},
        "shard by an absolute path": _index("absolute"),
        "shard by ..": _index("../weights.safetensors"),
        "base of an adapter by ..": _adapter(base_model_name_or_path="../tiny"),
        "device as vocab.txt": lambda: ((TINY / "vocab.txt").symlink_to("/dev/zero"), ["!train"])[1],
        "FIFO as merges.txt": lambda: (os.mkfifo(TINY / "merges.txt"), ["!train"])[1],
        "FIFO as config.json": lambda: ((TINY / "config.json").unlink(), os.mkfifo(TINY / "config.json"), [])[2],
        "link to itself": lambda: ((TINY / "vocab.txt").symlink_to("vocab.txt"), ["!train"])[1],
    },
    "chat templates": {
        **{name: _template(source) for name, source in TEMPLATES.items()},
        "not UTF-8": _template(b"\xff\xfe{{ messages }}"),
        "10 GB": _template(b"{{ 1 }}", big=10 * 10**9),
        "a list of numbers": _file("tokenizer_config.json", '{"chat_template": [1, 2]}'),
        "a number": _file("tokenizer_config.json", '{"chat_template": 7}'),
        "an object": _file("tokenizer_config.json", '{"chat_template": {"a": 1}}'),
        "surrogates in settings": _file("tokenizer_config.json", '{"chat_template": "\\ud800"}'),
    },
    "tokenizers": {
        "pattern that explodes": _tokenizer(_split({"Regex": "(a+)+$"})),
        "pattern that explodes 2": _tokenizer(_split({"Regex": "(a|a)*b"})),
        "empty pattern": _tokenizer(_split({"Regex": ""})),
        "empty text pattern": _tokenizer(_split({"String": ""})),
        "broken pattern": _tokenizer(_split({"Regex": "("})),
        "normalizer with an empty pattern": _tokenizer(
            lambda tree: tree.update(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "b" * 1000})
        ),
        "bad charsmap": _tokenizer(
            lambda tree: tree.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})
        ),
        "long bad charsmap": _tokenizer(
            lambda tree: tree.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w" + "A" * 200})
        ),
        "unknown token missing": _tokenizer(_wordlevel),
        "unigram without unknown": _tokenizer(_unigram(None)),
        "unigram with an unknown far out": _tokenizer(_unigram(99)),
        "id of an added token far out": _tokenizer(lambda tree: tree["added_tokens"][0].update(id=2**31)),
        "deep": _file("tokenizer.json", nested(100_000)),
        "a list": _file("tokenizer.json", "[]"),
        "not UTF-8": _file("tokenizer.json", b"\xff\xfe"),
        "settings: a list": _file("tokenizer_config.json", "[]"),
        "settings: deep": _file("tokenizer_config.json", nested(100_000)),
        "settings: depth 900": _file("tokenizer_config.json", nested(900)),
        "settings: end token of 1": _file("tokenizer_config.json", '{"eos_token": 1}'),
        "settings: bytes": _file("tokenizer_config.json", b"\xff\xff"),
        "generation config: deep": _file("generation_config.json", nested(100_000)),
        "generation config: end far out": _file("generation_config.json", '{"eos_token_id": 1e400}'),
        "truncation and padding": _tokenizer(
            lambda tree: tree.update(
                padding={
                    "strategy": {"Fixed": 2**40},
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "x",
                }
            )
        ),
    },
    "configs": {
        "deep": _file("config.json", nested(100_000)),
        "depth 900": _file("config.json", '{"model_type": "qwen3", "x": ' + nested(900) + "}"),
        "a list": _file("config.json", "[]"),
        "not UTF-8": _file("config.json", b"\xff\xfe\x00"),
        "a key twice": _file("config.json", '{"model_type": "qwen3", "model_type": "llama"}'),
        "digits": _file("config.json", '{"hidden_size": ' + "9" * 10_000 + "}"),
        "theta of digits": _config(rope_theta=10**400),
        "theta of 1 under yarn": lambda: (_yarn()(), _edit("config.json", rope_theta=1.0), ())[2],
        "yarn beta fast 1e29": _yarn(beta_fast=1e29),
        "yarn beta huge": _yarn(beta_fast=10**29, beta_slow=10**29),
        "yarn original 0.1": _yarn(original_max_position_embeddings=1e-300),
        "yarn factor text": _yarn(factor="2"),
        "yarn mscale text": _yarn(mscale="a", mscale_all_dim="b"),
        "yarn mscale list": _yarn(mscale=[1], mscale_all_dim=[2]),
        "yarn truncate": _yarn(truncate=[[]], beta_fast=1e-320),
        "yarn attention factor": _yarn(attention_factor="x"),
        "llama3 equal": _config(
            rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
        ),
        "linear 1e-320": _config(rope_scaling={"rope_type": "linear", "factor": 1e-320}),
        "rope type a list": _config(rope_scaling={"rope_type": ["linear"]}),
        "partial rotary": _config(partial_rotary_factor="x"),
        "vision without sizes": _config(posttrain_vision={}),
        "vision a list": _config(posttrain_vision=[1]),
        "vision patch 0": _config(posttrain_vision={"patch_size": 0, "image_size": 8, "image_token_id": 1}),
        "vision huge": _config(posttrain_vision={"patch_size": 10**6, "image_size": 10**9, "image_token_id": 1}),
        "vision text": _config(posttrain_vision={"patch_size": "4", "image_size": 8, "image_token_id": 1}),
        "vision token far out": _config(posttrain_vision={"patch_size": 4, "image_size": 8, "image_token_id": 10**9}),
        "flow without settings": _config(model_type="posttrain_flow"),
        "flow a list": _config(model_type="posttrain_flow", flow=[]),
        "flow huge": _config(
            model_type="posttrain_flow", flow={"kind": "flow", "width": 10**9, "layers": 10**9, "noise": "constant"}
        ),
        "flow deep": _config(model_type="posttrain_flow", flow={"kind": "flow", "layers": 10**6, "noise": "constant"}),
        "flow module": _config(model_type="posttrain_flow", flow={"kind": "evil.module"}),
        "model type a list": _config(model_type=["qwen3"]),
        "model type of control characters": _config(model_type=CONTROL),
        "hidden_act a list": _config(hidden_act=[]),
        "layer types": _config(layer_types=[[]]),
        "window": _config(use_sliding_window=True, sliding_window=[], max_window_layers=0),
        "end token text": _config(eos_token_id="x"),
        "end token far out": _config(eos_token_id=2**70),
    },
    "sizes": {
        "10^5 layers": _config(num_hidden_layers=10**5),
        "10^4 layers": _config(num_hidden_layers=10**4),
        "vocabulary": _config(vocab_size=10**8),
        "context": _config(max_position_embeddings=10**9),
        "10^5 layers through transformers": _transformers(n_layer=10**5),
        "width through transformers": _transformers(n_embd=10**6),
        "vocabulary through transformers": _transformers(vocab_size=10**10),
        "positions through transformers": _transformers(n_positions=10**10),
        "experts through transformers": _config(
            model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=10**6
        ),
        "6 GB vocab.txt": _big("vocab.txt", 6 * 10**9),
        "6 GB tokenizer.json": _big("tokenizer.json", 6 * 10**9, b"{"),
        "6 GB config.json": _big("config.json", 6 * 10**9, b"{"),
        "6 GB generation_config.json": _big("generation_config.json", 6 * 10**9, b"{"),
        "6 GB README.md": _big("README.md", 6 * 10**9),
        "weights of 1 TB": _big("model.safetensors", HUGE, struct.pack("<Q", 2) + b"{}"),
        "header of 99 MB": _big("model.safetensors", 2 * 10**8, struct.pack("<Q", 99_000_000) + b"{"),
    },
    "indices and weights": {
        "weight map a list": lambda: (
            _index("x")(),
            _write_json(TINY / "model.safetensors.index.json", {"weight_map": ["a"]}),
            [],
        )[2],
        "weight map a text": lambda: (
            _index("x")(),
            _write_json(TINY / "model.safetensors.index.json", {"weight_map": "a"}),
            [],
        )[2],
        "weight map missing": lambda: (_index("x")(), _write_json(TINY / "model.safetensors.index.json", {}), [])[2],
        "file a number": _index(7),
        "file a list": _index(["a"]),
        "file empty": _index(""),
        "file a dot": _index("."),
        "file with a null": _index("a\x00b"),
        "file name of 5,000": _index("a" * 5000),
        "index deep": lambda: (_index("x")(), (TINY / "model.safetensors.index.json").write_text(nested(100_000)), [])[
            2
        ],
        "index of an adapter": lambda: ((TINY / "adapter_config.json").write_text("{}"), [])[1],
        "complex weights": _weights(_complex),
        "whole numbers": _weights(lambda tensors: {name: t.int() for name, t in tensors.items()}),
        "no tensors": _weights(lambda tensors: {}),
        "names of control characters": _weights(lambda tensors: {CONTROL + name: t for name, t in tensors.items()}),
    },
    "adapters": {
        "no r": _adapter(r="absent"),
        "r of 10^9": _adapter(r=10**9),
        "r of 0": _adapter(r=0),
        "r a text": _adapter(r="2"),
        "r a list": _adapter(r=[2]),
        "r of 3, tensors of 2": _adapter(r=3),
        "no alpha": _adapter(lora_alpha="absent"),
        "alpha of digits": _adapter(lora_alpha=10**400),
        "alpha a list": _adapter(lora_alpha=[]),
        "alpha negative": _adapter(lora_alpha=-1.0),
        "no base": _adapter(base_model_name_or_path="absent"),
        "base a number": _adapter(base_model_name_or_path=7),
        "base a list": _adapter(base_model_name_or_path=["base"]),
        "base itself": _adapter(base_model_name_or_path="."),
        "base with a null": _adapter(base_model_name_or_path="a\x00b"),
        "base of 5,000": _adapter(base_model_name_or_path="a" * 5000),
        "bias a list": _adapter(bias=[]),
        "peft_type a list": _adapter(peft_type=[]),
        "tensors of other shapes": _adapter({"lora_A": (2, 17), "lora_B": (16, 2)}),
        "tensors without dimensions": _adapter({"lora_A": (), "lora_B": ()}),
        "config deep": lambda: (
            _adapter()(),
            Path("adapter/adapter_config.json").write_text(nested(100_000)),
            ["model=adapter"],
        )[2],
    },
}

GOOD: dict[str, Make] = {
    "model": lambda: (),
    "adapter": _adapter(),
    "chat template": _template("{% for m in messages %}{{ m.content }}{% endfor %}"),
    "yarn": _config(rope_scaling={"rope_type": "yarn", "factor": 2.0}),
    "shards": _index("shard.safetensors"),
}
