"""Similarities by hand, and what has nothing."""

import math

import pytest

from posttrain.components.rewards.text_similarity import TextSimilarity, bleu
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="t", prompt="a = ", answer="max(a, b)")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max(a, b)", 1.0),
        ("max(a, c)", 2 * 8 / 18),  # 8 of 9 and 9 characters in common order
        ("max(", 2 * 4 / 13),
        ("", 0.0),
        (" \n", 0.0),
        ("qz", 0.0),
    ],
)
def test_edit_similarity_by_hand(text: str, value: float) -> None:
    score = judge(TextSimilarity(), text, TASK)
    assert score.value == pytest.approx(value) and score.status == ("ok" if value == 1 else "wrong")


def test_bleu_by_hand() -> None:
    """Of ``x + y`` against ``x + z``: 2 of 3 words, (1 + 1) / (2 + 1) pairs, (0 + 1) / (1 + 1) triples, 1 / 1 above."""
    assert bleu("x + y", "x + z") == pytest.approx((2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25)
    assert bleu("x", "x + z") == pytest.approx(math.exp(1 - 3))
    assert bleu("q", "x + z") == 0.0 and bleu("x + z", "x + z") == 1.0
    assert judge(TextSimilarity(measure="bleu"), "", TASK).value == 0.0


def test_appended_text_has_less() -> None:
    whole, more = (judge(TextSimilarity(), text, TASK).value for text in ("max(a, b)", "max(a, b) max(a, b)"))
    assert more < whole
    assert judge(TextSimilarity(), "x", Task(key="bare", prompt="?")).status == "error"
