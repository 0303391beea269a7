"""What annotators agree on: quotations, labels and principles, by hand."""

from typing import Any

import pytest

from posttrain.grading.feedback import Entry, agreed, alike, entries, partial


def annotator(*principles: tuple[str, str, str], text: str = "It is polite, but far too long.") -> dict[str, Any]:
    return {
        "text": text,
        "principles": [dict(zip(("principle", "label", "evidence"), p, strict=True)) for p in principles],
    }


def test_quotations_by_hand() -> None:
    """ "palite" against "polite": 5 of 6 letters in order, so 83; three letters of nothing are 0."""
    assert partial("is polite", "It IS Polite.") == 100.0
    assert partial("palite", "It is polite") == pytest.approx(100 * 10 / 12)
    assert partial("", "text") == 0.0 == partial("text", "") and partial("qqq", "It is polite") < 40
    assert partial("It is polite, but", "polite") == 100.0, "the shorter one is looked for in the longer one"


def test_what_is_an_entry() -> None:
    found = entries(
        annotator(
            ("polite", "yes", "It is polite"),
            ("short", "No", "too long"),
            ("rude", "no", "zzz"),
            ("clear", "partially", "It is polite"),
            ("Helpfulness", "yes", "It is polite"),
        )
    )
    assert found == [Entry("polite", True), Entry("short", False)]
    assert len(entries(annotator(("rude", "no", "zzz")), evidence=0.0)) == 1


def test_every_other_annotator_must_agree() -> None:
    yes, no = ("polite", "yes", "polite"), ("polite", "no", "polite")
    near = ("politely", "yes", "polite")
    assert alike("polite", "polite") == pytest.approx(1.0) and alike("polite", "short") < 0.2
    assert agreed([annotator(yes), annotator(yes)]) == [Entry("polite", True)]
    assert agreed([annotator(yes), annotator(yes), annotator(no)]) == [], "the labels must agree too"
    assert agreed([annotator(yes), annotator()]) == []
    assert agreed([annotator(yes)]) == [] == agreed([]), "a single annotator has no consensus"
    assert agreed([annotator(yes), annotator(near)], similar=0.6) == [Entry("polite", True)]
    assert agreed([annotator(yes), annotator(("short", "yes", "long"))]) == []
