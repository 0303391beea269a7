"""Tokenizers of SentencePiece from metadata, beside its own rule: join the best neighbours, then the next best."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from posttrain.errors import UserError
from posttrain.policies.folder import BUNDLED
from posttrain.policies.gguf.sentencepiece import SPACE
from posttrain.policies.gguf.vocabulary import tokenizer_files
from posttrain.policies.tokenizer import Tokenizer as Ours

CORPUS = (BUNDLED / "pebble" / "README.md").read_text().splitlines()
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
FIRST = ["<unk>", "<s>", "</s>", *BYTES]
TEXTS = (
    *CORPUS,
    "Hello  world\n\n\tit's 1+22=23.",
    " a leading space, and one behind ",
    "é 日本語 🙂 of no piece",
    "<s> and </s> are text in data",
    "aaaa eeee",
)


@pytest.fixture(scope="module")
def pieces() -> list[str]:
    """What byte-pair encoding finds in a corpus, in the order in which it finds it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    found = sorted(backend.get_vocab(), key=lambda token: backend.get_vocab()[token])
    return [*(piece for piece in found if len(piece) > 1), *(piece for piece in found if len(piece) == 1)]


def metadata(pieces: list[str], **more: Any) -> dict[str, Any]:
    values = {
        "model": "llama",
        "tokens": [*FIRST, *pieces],
        "scores": [0.0] * len(FIRST) + [float(-rank) for rank in range(len(pieces))],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (values | more).items()}


def read(folder: Path, values: dict[str, Any]) -> Ours:
    for name, content in tokenizer_files(folder / "m.gguf", values).items():
        (folder / name).write_bytes(content)
    return Ours.load(folder)


def joined(text: str, pieces: list[str]) -> list[str]:
    """The pieces of a text by the rule itself: of all neighbours that make a piece, the best scored are joined."""
    parts, rank = list(text.replace(" ", SPACE)), {piece: number for number, piece in enumerate(pieces)}
    while True:
        possible = [(rank[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in rank]
        if not possible:
            break
        _, at = min(possible)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [token for part in parts for token in ([part] if part in rank else [BYTES[b] for b in part.encode()])]


def test_texts_are_joined_by_score(tmp_path: Path, pieces: list[str]) -> None:
    ours, ids = read(tmp_path, metadata(pieces)), {token: i for i, token in enumerate([*FIRST, *pieces])}
    rng = random.Random(0)
    drawn = ["".join(rng.choice("aeinst .") for _ in range(30)) for _ in range(50)]
    for text in (*filter(None, TEXTS), *drawn):
        expected = [ids[token] for token in joined(f" {text}", pieces)]
        assert ours.encode(text).tolist() == [1, *expected], text
        assert ours.decode(expected) == text
    assert ours.end_token_ids == {2} and ours.special_tokens.keys() == {"<unk>", "<s>", "</s>"}
    assert ours.encode("").tolist() == [1]


def test_without_the_space_before_texts(tmp_path: Path, pieces: list[str]) -> None:
    ours = read(tmp_path, metadata(pieces, add_space_prefix=False, add_bos_token=False))
    ids = {token: i for i, token in enumerate([*FIRST, *pieces])}
    for text in (" a b", "a b"):
        assert ours.encode(text).tolist() == [ids[token] for token in joined(text, pieces)]
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scores": [0.0]}, "a number for each token"),
        ({"scores": ["x"] * 1000}, "a number for each token"),
        ({"scores": [float("nan")] * 1000}, "no numbers"),
        ({"remove_extra_whitespaces": True}, "white space"),
        ({"tokens": [*FIRST, "a" * 20_000], "token_type": [1] * 260, "scores": [0.0] * 260}, "20,000 characters"),
        ({"model": "bert"}, "SentencePiece"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, pieces: list[str], more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tokenizer_files(tmp_path / "m.gguf", metadata(pieces, **more))
