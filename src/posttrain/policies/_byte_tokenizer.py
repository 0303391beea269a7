"""A byte-level tokenizer for new models: one token a byte and a few special tokens, so that any text can be given.

Token ids 0 to 255 are the bytes of the text's UTF-8 encoding. The files are those of an ordinary Hugging Face folder.
"""

import json
from collections.abc import Sequence
from pathlib import Path

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PAD_TOKEN, END_TOKEN = SPECIAL_TOKENS[:2]
PAD_TOKEN_ID, END_TOKEN_ID = 256, 257
VOCABULARY_SIZE = 256 + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('a message has the role ' ~ message.role ~ '; known are system, user and assistant') }}"
    "{% endif %}"
    "{{ '<|' ~ message.role ~ '|>' ~ message.content ~ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


IMAGE_TOKEN = "<|image|>"
"""The token of a patch of an image; the last one, in models that see."""


def write_byte_tokenizer(folder: Path, *, words: Sequence[str] = (), sees: bool = False) -> int:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, chat template included; the number of tokens.

    `words` are texts that are one token each, beside the bytes; `sees` adds the token of images.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(byte_symbols())}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    backend.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    if sees:
        backend.add_special_tokens([AddedToken(IMAGE_TOKEN, special=True, normalized=False)])
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD_TOKEN,
        "eos_token": END_TOKEN,
        "additional_special_tokens": list(SPECIAL_TOKENS[2:]),
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    size: int = backend.get_vocab_size(with_added_tokens=True)
    return size


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (Radford et al. 2019, GPT-2).

    A byte that is a printable, non-blank Latin-1 character stands for itself; the others, in order, take the
    characters from U+0100 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(256))
    return [chr(byte if byte in printable else 256 + next(spare)) for byte in range(256)]
