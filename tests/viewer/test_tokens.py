"""Numbers of tokens, and the strength at which they are shown."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs.token_text import TokenTexts
from posttrain.viewer.tokens import KNOWN, colourings, marked
from tests.runs.made_runs import write_byte_tokenizer

Row = dict[str, Any]


def row(text: str = "ab", prompt: str = "?", **columns: Any) -> Row:
    """A rollout whose tokens are bytes; numbers are those of the tokens after the prompt."""
    ids = list((prompt + text).encode())
    asked = len(prompt.encode())
    none: list[float | None] = [None] * asked
    whole = {name: None if values is None else [*none, *values] for name, values in columns.items()}
    missing = dict.fromkeys(("sampled_logp", "trained_logp", "entropy", "ratio", "advantage", "value"))
    return {
        "token_ids": ids,
        "trained": [False] * asked + [True] * (len(ids) - asked),
        "segments": [
            {"actor": "prompt", "length": asked, "turn": 0, "reward": 0.0},
            {"actor": "policy", "length": len(ids) - asked, "turn": 0, "reward": 0.0},
        ],
        **missing,
        **whole,
    }


def colouring(name: str) -> Any:
    return next(c for c in KNOWN if c.name == name)


def pieces(own: dict[str, Any]) -> list[dict[str, Any]]:
    return [piece for segment in own["segments"] for piece in segment["pieces"]]


def test_only_colourings_for_which_numbers_are_recorded() -> None:
    assert colourings([row()]) == []
    found = colourings([row(sampled_logp=[-1.0, -2.0], reference_logp=[-1.0, -1.0])], ["policy", "reference"])
    assert [c.name for c in found] == ["surprise", "reference_logp"]
    full = row(
        sampled_logp=[-1.0, -1.0],
        trained_logp=[-1.0, -1.0],
        entropy=[0.1, 0.1],
        ratio=[1.0, 1.0],
        advantage=[1.0, 1.0],
        value=[0.0, 0.0],
    )
    assert [c.name for c in colourings([full])] == [c.name for c in KNOWN]


def test_signed_numbers_are_shown_beside_the_strongest_of_the_page() -> None:
    rows = [row(advantage=[0.5, -1.0]), row(advantage=[2.0, 0.0])]
    first, second = marked(rows, None, colouring("advantage"))
    assert [(p["strength"], p["below"]) for p in pieces(first)] == [(0.0, False), (0.25, False), (0.5, True)]
    assert [(p["strength"], p["below"]) for p in pieces(second)] == [(0.0, False), (1.0, False), (0.0, False)]


def test_unsigned_numbers_have_a_fixed_full_strength() -> None:
    [own] = marked([row(sampled_logp=[-1.0, -9.0])], None, colouring("surprise"))
    assert [p["strength"] for p in pieces(own)] == [0.0, 0.25, 1.0]
    assert not any(p["below"] for p in pieces(own))


def test_log_ratio_and_gap() -> None:
    """exp(0.5) and exp(-1) are half a nat up and one down; the learner is a quarter of a nat above the sampler."""
    own = row(ratio=[math.exp(0.5), math.exp(-1.0)], sampled_logp=[-1.0, -1.0], trained_logp=[-0.75, -1.0])
    [shown] = marked([own], None, colouring("log_ratio"))
    assert [(p["strength"], p["below"]) for p in pieces(shown)][1:] == [(0.5, False), (1.0, True)]
    [shown] = marked([own], None, colouring("gap"))
    assert [(p["strength"], p["below"]) for p in pieces(shown)][1:] == [(1.0, False), (0.0, False)]


def test_numbers_of_a_token() -> None:
    own = row(sampled_logp=[-1.0, -2.0], advantage=[0.5, math.nan], entropy=[0.25, 0.125])
    [shown] = marked([own], None, None)
    assert [p["numbers"] for p in pieces(shown)] == [
        "token 63 at 0",
        "token 97 at 1, advantage 0.500, surprise 1.000, entropy 0.250",
        "token 98 at 2, surprise 2.000, entropy 0.125",
    ]
    assert [p["trained"] for p in pieces(shown)] == [False, True, True]


def test_sampled_log_probabilities_fill_in_for_the_learners() -> None:
    own = row(sampled_logp=[-1.0, math.nan], trained_logp=[-3.0, -2.0])
    [shown] = marked([own], None, colouring("surprise"))
    assert [p["strength"] for p in pieces(shown)][1:] == [0.25, 0.5]


def test_tokens_of_a_part_of_a_character_are_one_piece(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    texts = TokenTexts(tmp_path / "tokenizer.json")
    own = row("aü€", prompt="", advantage=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    [shown] = marked([own], texts, colouring("advantage"))
    assert [(p["text"], p["strength"]) for p in pieces(shown)] == [("a", 0.17), ("ü", 0.33), ("€", 0.67)]
    assert pieces(shown)[2]["numbers"].startswith("token 226 130 172 at 3, advantage 4.000")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": {"vocab": 3}}', "[" * 100_000, '{"model": {"vocab": [1]}}']
)
def test_what_is_no_tokenizer_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer"):
        TokenTexts(tmp_path / "tokenizer.json")


def test_a_tokenizer_is_a_file_of_the_run(tmp_path: Path) -> None:
    write_byte_tokenizer(tmp_path)
    (tmp_path / "link.json").symlink_to("tokenizer.json")
    with pytest.raises(UserError, match="it is a link"):
        TokenTexts(tmp_path / "link.json")


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    vocabulary = [["<unk>", 0.0], ["\u2581a", -1.0], ["b", -2.0]]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": vocabulary}}))
    texts = TokenTexts(tmp_path / "tokenizer.json")
    assert "".join(piece.text for piece in texts.pieces([1, 2])) == " ab"


def test_without_a_tokenizer_tokens_are_numbers() -> None:
    [shown] = marked([row("a")], None, None)
    assert [p["text"] for p in pieces(shown)] == ["[63]", "[97]"]


def test_tokens_left_out_are_counted() -> None:
    own = row("abcdef", prompt="??")
    [shown] = marked([own], None, None, most=4)
    assert (shown["left_out"], shown["length"]) == (4, 8)
    assert len(pieces(shown)) == 4
    [shown] = marked([own], None, None, most=1)
    assert [segment["actor"] for segment in shown["segments"]] == ["prompt"]
    [shown] = marked([own], None, None, most=None)
    assert (shown["left_out"], len(pieces(shown))) == (0, 8)


@pytest.mark.parametrize("name", [c.name for c in KNOWN])
def test_all_zero_is_no_strength(name: str) -> None:
    own = row(
        sampled_logp=[0.0, 0.0],
        trained_logp=[0.0, 0.0],
        entropy=[0.0, 0.0],
        ratio=[1.0, 1.0],
        advantage=[0.0, 0.0],
        value=[0.0, 0.0],
    )
    [shown] = marked([own], None, colouring(name))
    assert {p["strength"] for p in pieces(shown)} == {0.0}
