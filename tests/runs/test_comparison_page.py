"""The page of a comparison."""

from typing import Any

import pytest

from posttrain.runs.compared import COST, notes_of, rows_of
from posttrain.runs.comparison_page import page


@pytest.fixture
def result() -> dict[str, Any]:
    cost = dict.fromkeys(COST, 1000.0)
    of = {"grpo": [0.5, 0.52, 0.6], "<b>n=4</b>": [0.61, 0.62, 0.68]}
    values = {n: {s: {"accuracy_after": v, **cost} for s, v in enumerate(vs)} for n, vs in of.items()}
    rows = rows_of(values, ["accuracy_after"])
    for shift, row in enumerate(rows):
        mean = [0.1 + 0.1 * shift, 0.3, 0.5]
        row["curves"] = {"reward": {"steps": [1, 2, 3], "mean": mean, "interval": [[m - 0.05, m + 0.05] for m in mean]}}
    notes = notes_of(rows, ["accuracy_after"])
    return {"base": "grpo", "measures": ["accuracy_after"], "notes": notes, "contenders": rows, "failures": {}}


def test_the_page_has_sentences_differences_curves_and_costs(result: dict[str, Any]) -> None:
    text = page(result)
    assert "accuracy_after is higher than grpo&#39;s by +9.7 points" in text
    assert "With 3 seeds a sign-flip test" in text
    assert text.count('class="seed"') == 3 and text.count('class="ribbon"') == 2
    assert "54.0 % [" in text and "1,000" in text and "interquartile mean" in text


def test_the_page_needs_no_network_and_escapes_labels(result: dict[str, Any]) -> None:
    text = page(result)
    assert "<b>n=4" not in text and "&lt;b&gt;n=4" in text
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "") and "https:" not in text and "url(" not in text
    assert "default-src 'none'" in text


def test_a_comparison_of_one_seed_has_a_page(result: dict[str, Any]) -> None:
    rows = rows_of({n: {0: {"m": 1.0, **dict.fromkeys(COST, 1.0)}} for n in "ab"}, ["m"])
    for row in rows:
        row["curves"] = {"reward": {"steps": [1, 2], "mean": [0.0, 1.0], "interval": [None, None]}}
    text = page({**result, "base": "a", "measures": ["m"], "notes": [], "contenders": rows})
    assert "m is the same" in text or "one seed gives no interval" in text
