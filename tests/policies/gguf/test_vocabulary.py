"""Tokenizers from metadata: ids of the published tokenizers' own construction, made here by the library."""

import json

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from posttrain.policies.folder import BUNDLED
from posttrain.policies.gguf.vocabulary import tokenizer_files
from posttrain.policies.tokenizer import Tokenizer as Ours

TEXTS = (
    "The 12,345 cats don't sleep; they've 3 beds.\n\n  Café ÀÉ 日本語 🙂\t\r\n x=1+22*333 'S",
    "DON'T we'LL I'm\n\n\n 007  and    spaces   \n",
    "don\u0301t é \u1e9b\u0323 <|im_end|> <|note|> ²³ ١٢٣ _a_b-c",
    "",
    " ",
)
CORPUS = [*TEXTS, *(BUNDLED / "pebble" / "README.md").read_text().splitlines()]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "qwen2": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    ),
    "llama-bpe": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    ),
}


def trained(pre: str) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = SPLITS[pre], decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|start|>", "<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS * 2, trainer)
    backend.add_tokens([AddedToken("<|note|>", special=False, normalized=False)])
    return backend


def metadata(backend: Tokenizer, pre: str) -> dict:
    written = json.loads(backend.to_str())
    texts = {number: token for token, number in backend.get_vocab(with_added_tokens=True).items()}
    kinds = {token["id"]: 3 if token["special"] else 4 for token in written["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [texts[number] for number in range(len(texts))],
        "tokenizer.ggml.token_type": [kinds.get(number, 1) for number in range(len(texts))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in written["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def read(folder, values: dict) -> Ours:
    for name, content in tokenizer_files(folder / "m.gguf", values).items():
        (folder / name).write_bytes(content)
    return Ours.load(folder)


@pytest.mark.parametrize("pre", SPLITS)
def test_ids_are_those_of_the_original(tmp_path, pre):
    original = trained(pre)
    ours = read(tmp_path, metadata(original, pre) | {"tokenizer.ggml.add_bos_token": False})
    for text in CORPUS:
        ids = ours.allowing_special_tokens().encode(text).tolist()
        assert ids == original.encode(text).ids, text
        assert ours.decode(ids, special=True) == original.decode(ids, skip_special_tokens=False)
    assert ours.special_tokens == {"<|start|>": 0, "<|im_end|>": 1}
    others = [read(tmp_path, metadata(original, other)) for other in SPLITS if other != pre]
    assert all(any(o.encode(text).tolist() != original.encode(text).ids for text in CORPUS) for o in others)


def test_a_start_token_is_put_before_texts_where_the_file_states_it(tmp_path):
    values = metadata(trained("llama-bpe"), "llama-bpe")
    for said, expected in ((None, [0]), (True, [0]), (False, [])):
        given = values if said is None else values | {"tokenizer.ggml.add_bos_token": said}
        assert read(tmp_path, given).encode("").tolist() == expected
    values = metadata(trained("qwen2"), "qwen2")
    assert read(tmp_path, values).encode("").tolist() == []


def test_unused_tokens_that_fill_the_embedding_are_left_out_and_further_end_tokens_end(tmp_path):
    values = metadata(trained("qwen2"), "qwen2")
    count = len(values["tokenizer.ggml.tokens"])
    values["tokenizer.ggml.tokens"] += ["[PAD1]", "[PAD2]"]
    values["tokenizer.ggml.token_type"] += [5, 5]
    ours = read(tmp_path, values | {"tokenizer.ggml.eot_token_id": 0})
    assert ours.size == count
    assert ours.end_token_ids == {0, 1}
