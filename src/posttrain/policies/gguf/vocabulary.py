"""The tokenizer in a GGUF file, as the tokenizer files of a model folder.

Read are vocabularies of SentencePiece (``tokenizer.ggml.model`` is ``llama``: `posttrain.policies.gguf.sentencepiece`)
and byte-level BPE ones (``gpt2``) of the pre-tokenizers that are listed here. A file names its pre-tokenizer and does
not hold it: the patterns are those of the models that it stands for.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from posttrain.errors import UserError
from posttrain.errors.foreign import guard, shown
from posttrain.policies.gguf import sentencepiece

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
"""Types of tokens (``tokenizer.ggml.token_type``)."""
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"gpt-2": "", "smollm": "digits", "qwen2": _WORDS % "", "llama-bpe": _WORDS % "{1,3}"}
"""By pre-tokenizer, how words are split before bytes: GPT-2's way, the same after single digits, or a pattern."""
_ALIASES = {"gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}
_PIECES = "sentencepiece"
"""Stands for a pre-tokenizer where there is none."""
_KEY = "tokenizer.ggml"


def tokenizer_files(path: Path, metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Contents of the tokenizer files, and of the generation config, by name.

    Raises `UserError` for a tokenizer that is not read.
    """
    where = f"'{path}'"
    split = _pre_tokenizer(where, metadata)
    tokens, types = _tokens(where, metadata)
    named = _named(where, metadata, tokens)
    with guard(f"{where}: its tokenizer cannot be made"):
        backend = _backend(metadata, split, tokens, types)
        if _starts(metadata, split) and (start := named.get("bos_token")) is not None:
            backend.post_processor = processors.TemplateProcessing(
                single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, tokens.index(start))]
            )
        written: str = backend.to_str(pretty=True)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named
    }  # fmt: skip
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise UserError(f"{where}: tokenizer.chat_template is {shown(repr(template), 60)}; it is a text")
    if template:
        settings["chat_template"] = template
    ids = (metadata.get(f"{_KEY}.{name}_token_id") for name in ("eos", "eot", "eom"))
    generation = {"eos_token_id": list(dict.fromkeys(i for i in ids if i is not None))}
    if (padding := metadata.get(f"{_KEY}.padding_token_id")) is not None:
        generation["pad_token_id"] = padding
    return {
        "tokenizer.json": written.encode(),
        "tokenizer_config.json": _json(settings),
        "generation_config.json": _json(generation),
    }


def _pre_tokenizer(where: str, metadata: Mapping[str, Any]) -> str:
    """The name of the pre-tokenizer. Raises `UserError` for a tokenizer that is not read."""
    remedy = (
        "put the file into a folder together with the model's own tokenizer.json and tokenizer_config.json, and name "
        "the folder as the model"
    )
    kind = metadata.get(f"{_KEY}.model")
    if kind == "llama":
        return _PIECES
    if kind != "gpt2":
        raise UserError(
            f"{where} has a tokenizer of the kind {shown(repr(kind), 40)}; byte-level BPE ('gpt2') and "
            f"SentencePiece ('llama') are read from GGUF; {remedy}"
        )
    name = metadata.get(f"{_KEY}.pre", "default")
    split = _ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(split, str) or split not in _SPLITS:
        raise UserError(
            f"{where} names the pre-tokenizer {shown(repr(name), 40)}, which is not known here (known: "
            f"{', '.join((*_SPLITS, *_ALIASES))}); {remedy}"
        )
    return split


def _tokens(where: str, metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Texts and types of the tokens, without the unused ones that only fill the embedding."""
    tokens, types = metadata.get(f"{_KEY}.tokens"), metadata.get(f"{_KEY}.token_type")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise UserError(f"{where}: {_KEY}.tokens is {shown(repr(tokens), 60)}; it is a list of texts")
    types = [_NORMAL] * len(tokens) if types is None else types
    if not isinstance(types, list) or len(types) != len(tokens):
        raise UserError(f"{where}: {_KEY}.token_type is {shown(repr(types), 60)}; it is a number for each token")
    used = max((place + 1 for place, kind in enumerate(types) if kind != _UNUSED), default=0)
    tokens, types = tokens[:used], types[:used]
    if len(set(tokens)) < len(tokens):
        raise UserError(f"{where}: some of its {len(tokens):,} tokens have the same text; the vocabulary is damaged")
    return tokens, types


def _named(where: str, metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    """Texts of the start, end, unknown and padding tokens, where the file has them."""
    named = {}
    roles = {"bos": "bos", "eos": "eos", "eot": "", "eom": "", "unknown": "unk", "padding": "pad"}
    for role, ours in roles.items():
        number = metadata.get(f"{_KEY}.{role}_token_id")
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(tokens):
            raise UserError(
                f"{where}: {_KEY}.{role}_token_id is {shown(repr(number), 40)}, and there are {len(tokens):,} tokens"
            )
        if ours:
            named[f"{ours}_token"] = tokens[number]
    return named


def _backend(metadata: Mapping[str, Any], split: str, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """The tokenizer of the library."""
    backend = _plain_backend(metadata, split, tokens, types)
    for token, kind in zip(tokens, types, strict=True):
        if kind in (_UNKNOWN, _CONTROL):
            backend.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == _USER_DEFINED:
            backend.add_tokens([AddedToken(token, special=False, normalized=False)])
    return backend


def _plain_backend(metadata: Mapping[str, Any], split: str, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """The tokenizer without its special tokens."""
    if split == _PIECES:
        return sentencepiece.backend_of(metadata, tokens, [kind in (_NORMAL, _USER_DEFINED) for kind in types])
    merges = metadata.get(f"{_KEY}.merges", [])
    pairs = [tuple(merge.split(" ")) for merge in merges]
    odd = [merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2]
    if odd:
        raise ValueError(f"the merge {shown(repr(odd[0]), 60)} is not two parts with a space between them")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=split == "llama-bpe"))
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in ("gpt-2", "smollm"))
    first: pre_tokenizers.PreTokenizer | None = None
    if split == "smollm":
        first = pre_tokenizers.Digits(individual_digits=True)
    elif split != "gpt-2":
        first = pre_tokenizers.Split(Regex(_SPLITS[split]), behavior="isolated", invert=False)
    backend.pre_tokenizer = by_bytes if first is None else pre_tokenizers.Sequence([first, by_bytes])
    if split == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _starts(metadata: Mapping[str, Any], split: str) -> bool:
    """Whether texts begin with the start token; those of both kinds of Llama do where the file does not say."""
    return bool(metadata.get(f"{_KEY}.add_bos_token", split in ("llama-bpe", _PIECES)))


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
