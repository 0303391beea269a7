"""Columns that are the prompt where no other is: patches, theorems, translations, functions."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main

TRANSLATED = {"source": "be ba", "reference": "ka ma", "completion": "<think>a</think><translate>ka ma</translate>"}


@pytest.mark.parametrize(
    ("reward", "row"),
    [
        pytest.param("translation", TRANSLATED, id="translation"),
        (
            "proved",
            {"statement": "7 is prime.", "truth": True, "completion": "so </think> <answer> \\boxed{proved} </answer>"},
        ),
        (
            "uses",
            {"reference": "def f(x):\n    return x", "inputs": [["float32[3]"]], "completion": "def f(x): return x"},
        ),
        ("word_overlap", {"issue": "Greet.", "answer": "hello", "completion": "hello"}),
    ],
)
def test_a_file_with_these_columns_is_scored(
    reward: str, row: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reward == "translation":
        pytest.importorskip("sacrebleu")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert main(["score", reward, str(file)]) == 0
    assert "1 completions: 1 ok" in capfd.readouterr().out


def test_the_origin_of_a_row_is_no_prompt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"source": "web", "body": "a", "answer": "b", "completion": "b"}) + "\n")
    assert main(["score", "match", str(file)]) == 2
    assert "no column is known to hold the prompt" in capfd.readouterr().err
