"""Similarities by hand, and what has nothing."""

import math
from random import Random

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


def test_chrf_and_ter_by_hand() -> None:
    pytest.importorskip("sacrebleu")
    task = Task(key="t", prompt="p", answer="the dog sees a cat")
    found = {
        (measure, text): judge(TextSimilarity(measure=measure), text, task).value  # type: ignore[arg-type]
        for measure in ("chrf", "ter")
        for text in ("the dog sees a cat", "the cat sees a dog", "the dog sees a", "q", "")
    }
    assert found["chrf", "the dog sees a cat"] == found["ter", "the dog sees a cat"] == pytest.approx(1.0)
    assert found["ter", "the cat sees a dog"] == pytest.approx(1 - 2 / 5)  # two words exchanged
    assert found["ter", "the dog sees a"] == pytest.approx(1 - 1 / 5)
    assert found["ter", "q"] == found["chrf", "q"] == found["ter", ""] == found["chrf", ""] == 0.0
    assert 0.5 < found["chrf", "the dog sees a"] < 1.0
    russian = Task(key="t", prompt="p", answer="мама мыла раму")
    assert judge(TextSimilarity(measure="chrf"), "мама мыла раму", russian).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("measure", "cut"), [("edit", "4000 characters"), ("bleu", "4000 characters"), ("ter", "50 words")]
)
def test_what_is_cut_is_stated(measure: str, cut: str) -> None:
    if measure == "ter":
        pytest.importorskip("sacrebleu")
    long = "max " * 2000
    score = judge(TextSimilarity(measure=measure), long, Task(key="t", prompt="p", answer=long))  # type: ignore[arg-type]
    assert score.value == pytest.approx(1.0) and f"of the first {cut}" in score.explanation
    assert "first" not in judge(TextSimilarity(measure=measure), "max(", TASK).explanation  # type: ignore[arg-type]


def test_appended_text_has_less() -> None:
    whole, more = (judge(TextSimilarity(), text, TASK).value for text in ("max(a, b)", "max(a, b) max(a, b)"))
    assert more < whole
    assert judge(TextSimilarity(), "x", Task(key="bare", prompt="?")).status == "error"


def test_bleu_is_that_of_sacrebleu_with_one_added() -> None:
    """Lin and Och 2004: one is added to the counts of n-grams of two words and more."""
    metrics = pytest.importorskip("sacrebleu.metrics.bleu")
    metric = metrics.BLEU(smooth_method="add-k", smooth_value=1, tokenize="none", force=True)
    rng, words = Random(0), ["a", "red", "tea", "cup", ".", "2"]
    positive = 0
    for _ in range(2000):
        text, reference = (" ".join(rng.choices(words, k=rng.randint(4, 14))) for _ in range(2))
        ours = bleu(text, reference)
        assert ours == pytest.approx(metric.sentence_score(text, [reference]).score / 100, abs=1e-12)
        positive += ours > 0
    assert positive > 1500
