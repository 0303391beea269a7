"""ROUGE against the rouge-score package (Lin 2004, as Google's research code computes it), where it is installed.

Ours is its own code since the package's takes two seconds for 3,000 words; the numbers are the same.
"""

from random import Random

import pytest

from posttrain.grading.similarity import rouge, rouge_l

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
CASES = 2000


def test_f_measures_are_those_of_the_package() -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    rng = Random(0)
    words = ["a", "red", "tea", "Cup", "2", "x-y", "don't", "über", "", "...", "чай"]
    different = 0
    for _ in range(CASES):
        text, other = (" ".join(rng.choices(words, k=rng.randint(0, 12))) for _ in range(2))
        theirs = scorer.score(other, text)
        ours = {"rouge1": rouge(text, other, 1), "rouge2": rouge(text, other, 2), "rougeL": rouge_l(text, other)}
        for name, value in ours.items():
            assert value == pytest.approx(theirs[name].fmeasure, abs=1e-12), (name, text, other)
        different += 0 < ours["rougeL"] < 1
    assert different > CASES / 2


def test_a_tokenizer_of_all_scripts_is_that_of_letters() -> None:
    """By itself the package finds no word in Russian; with a tokenizer it agrees with `letters`."""

    class Letters:
        def tokenize(self, text: str) -> list[str]:
            import re

            return re.findall(r"\w+", text.lower())

    plain, with_letters = (
        rouge_scorer.RougeScorer(["rougeL"]),
        rouge_scorer.RougeScorer(["rougeL"], tokenizer=Letters()),
    )
    rng, words = Random(1), ["чай", "и", "Красный", "茶", "cup"]
    assert plain.score("красный чай", "красный чай")["rougeL"].fmeasure == 0.0
    for _ in range(200):
        text, other = (" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(2))
        wanted = with_letters.score(other, text)["rougeL"].fmeasure
        assert rouge_l(text, other, letters=True) == pytest.approx(wanted, abs=1e-12)
