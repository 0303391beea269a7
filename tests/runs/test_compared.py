"""What a comparison concludes from made-up measures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.errors import UserError
from posttrain.recipes.files import find_recipe
from posttrain.runs.compared import COST, criterion, notes_of, rows_of, sentence
from posttrain.runs.measures import IN_SUMMARY, in_every_summary
from posttrain.runs.rehearsal import check_measures
from posttrain.runs.store import RunStore
from posttrain.runs.summary import summarize
from tests.runs.made_runs import make_run


def rows(base: Sequence[float], *others: Sequence[float], measure: str = "accuracy_after") -> list[dict[str, Any]]:
    values = {
        name: {seed: {measure: value, **dict.fromkeys(COST, 1.0)} for seed, value in enumerate(of)}
        for name, of in zip("abcdefgh", (base, *others), strict=False)
    }
    return rows_of(values, [measure])


def said(base: Sequence[float], other: Sequence[float], measure: str = "accuracy_after") -> str:
    return sentence(rows(base, other, measure=measure)[1], measure, "a")


def test_sentences_by_verdict() -> None:
    # Differences 0.10, 0.11, 0.12: mean 0.11, standard error 0.01 / sqrt(3), t of 2 degrees 4.302653.
    assert said([0.1, 0.1, 0.1], [0.2, 0.21, 0.22]) == (
        "b: accuracy_after is higher than a's by +11.0 points [+8.5, +13.5] (higher in 3 of 3 seeds, p = 0.0027)."
    )
    assert said([0.2, 0.21, 0.22], [0.1, 0.1, 0.1]).startswith(
        "b: accuracy_after is lower than a's by -11.0 points [-13.5"
    )
    unclear = said([0.1, 0.2, 0.3], [0.2, 0.1, 0.4])
    assert unclear.startswith("b: no difference in accuracy_after from a's that 3 seeds can show: +3.3 points [-25.4,")
    assert unclear.endswith("points would have been found 4 times in 5.")
    assert said([0.1], [0.2]) == "b: accuracy_after differs from a's by +10.0 points; one seed gives no interval."
    assert said([0.1, 0.2], [0.2, 0.3]) == (
        "b: accuracy_after differs from a's by +10.0 points in each of 2 seeds; without a std there is no test."
    )


def test_equal_measures_are_the_same_and_nothing_of_size_0_would_have_been_found() -> None:
    assert said([0.3, 0.7], [0.1 + 0.2, 0.7]) == "b: accuracy_after is the same as a's in each of 2 seeds."
    # The sum of these differences is 2.8e-17 in floating point.
    text = said([0.1, 0.2, 0.3], [0.3, 0.1, 0.2], measure="reward:mean")
    assert "can show: 0 [" in text and "e-" not in text


def test_a_sentence_claims_a_difference_exactly_where_its_interval_and_p_value_do() -> None:
    generator = np.random.default_rng(4)
    for _ in range(20):
        count = int(generator.integers(2, 7))
        base = generator.normal(0.5, 0.05, count)
        others = [base + generator.normal(0.05, 0.04, count) for _ in range(int(generator.integers(1, 4)))]
        for row in rows(list(base), *map(list, others))[1:]:
            found, text = row["accuracy_after"]["difference"], sentence(row, "accuracy_after", "a")
            low, high = found["interval"]
            claimed = "is higher" in text or "is lower" in text
            assert claimed == (low > 0 or high < 0) == (found["p_value"] < 0.05)
            assert "sign-flip" not in text


def test_several_differences_are_corrected_by_holm() -> None:
    # The difference from b has p = 0.045 alone; one of two has 0.089.
    base, other = [0.1, 0.1, 0.1], [0.2, 0.22, 0.3]
    (_, alone), (_, first, second) = rows(base, other), rows(base, other, [x + 0.001 * i for i, x in enumerate(other)])
    uncorrected = alone["accuracy_after"]["difference"]["p_value"]
    found = first["accuracy_after"]["difference"]
    assert uncorrected < 0.05 and uncorrected == found["uncorrected_p"]
    assert found["p_value"] == pytest.approx(2 * uncorrected) and found["verdict"] == "unclear"
    assert found["interval"][0] < 0 < alone["accuracy_after"]["difference"]["interval"][0]
    assert "(97.5 % interval)" in sentence(first, "accuracy_after", "a")
    notes = notes_of([rows(base)[0], first, second], ["accuracy_after"])
    assert "2 differences are tested: Holm's procedure" in notes[1]
    assert len(notes_of([rows(base)[0], alone], ["accuracy_after"])) == 1


def test_the_smallest_possible_p_comes_first() -> None:
    assert criterion(4).startswith(
        "With 4 seeds a sign-flip test, which assumes no distribution, has p = 0.125 at best."
    )
    assert notes_of(rows([0.1] * 4, [0.2, 0.1, 0.2, 0.2]), ["accuracy_after"]) == [criterion(4)]
    assert "sign-flip" not in criterion(6)


def test_the_interquartile_mean_stands_next_to_the_mean() -> None:
    (row,) = rows([0.0, 0.1, 0.2, 0.3, 1.0])
    assert row["accuracy_after"]["mean"] == pytest.approx(0.32)
    assert row["accuracy_after"]["iqm"]["value"] == pytest.approx(0.2)
    low, high = row["accuracy_after"]["iqm"]["interval"]
    assert 0.0 <= low < 0.2 < high <= 1.0
    assert rows([0.5])[0]["accuracy_after"]["iqm"] is None


def test_seeds_without_both_runs_are_left_out_of_the_difference() -> None:
    cost = dict.fromkeys(COST, 1.0)
    values = {
        "a": {0: {"m": 1.0, **cost}, 1: {"m": 2.0, **cost}},
        "b": {1: {"m": 5.0, **cost}, 2: {"m": 9.0, **cost}},
        "c": {},
    }
    _, b, c = rows_of(values, ["m"])
    assert (b["m"]["difference"]["seeds"], b["m"]["difference"]["value"], b["m"]["mean"]) == (1, 3.0, 7.0)
    assert c["m"] is None and sentence(c, "m", "a") == "c has no seed in common with a."


@pytest.mark.slow
def test_names_of_every_summary_need_no_rehearsal(tmp_path: Path) -> None:
    with RunStore.open(make_run(tmp_path), reading=True) as store:
        summary = summarize(store)
    assert {name for name, value in summary.items() if isinstance(value, int | float)} - set(IN_SUMMARY) == {
        "verifier_is_training_reward"
    }
    assert in_every_summary("accuracy_after") and not in_every_summary("accuracy_after:mean")


def test_a_measure_is_checked_on_a_finished_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    recipe = find_recipe("grpo")
    check_measures({"grpo": (recipe, [run])}, ["reward:mean"], print)
    with pytest.raises(UserError, match=r"--measure rewrd: 'grpo': no number 'rewrd'.* 'reward'"):
        check_measures({"grpo": (recipe, [run])}, ["rewrd"], print)
