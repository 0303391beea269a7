"""Boxes: overlaps and matching worked out by hand, the release's edge cases, and what must not be rewarded."""

import json
import math
from typing import Any

import pytest

from posttrain.components.rewards.boxes import Boxes
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sum import Sum
from posttrain.grading.boxes import Box, giou, iou, match, read_boxes
from posttrain.types import Score, Task
from tests.components.rewards.judging import judge

A, B = [0, 0, 10, 10], [20, 0, 30, 10]
ONE = Task(key="one", prompt="<image>Where?", fields={"boxes": [A]})
TWO = Task(key="two", prompt="<image>Where?", fields={"boxes": [A, B]})


def answer(*boxes: tuple[list[Any], Any]) -> str:
    rows = json.dumps([{"Position": position, "Confidence": confidence} for position, confidence in boxes])
    return f"<think>looking</think><answer>{rows}</answer>"


def value(measure: Any, text: str, task: Task = TWO) -> float:
    score = judge(Boxes(measure=measure), text, task)
    assert score.status != "error"
    return score.value


def test_iou_by_hand() -> None:
    # 5 x 10 shared; 100 + 100 - 50 covered
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(50 / 150)
    # 2 x 3 shared; 16 + 25 - 6
    assert iou((0, 0, 4, 4), (2, 1, 7, 6)) == pytest.approx(6 / 35)
    assert iou((0, 0, 10, 10), (10, 0, 20, 10)) == 0.0, "sides that touch share nothing"
    assert iou((3, 3, 3, 9), (3, 3, 3, 9)) == 0.0, "a box without area"
    assert iou((10, 10, 0, 0), (0, 0, 10, 10)) == 0.0, "corners the wrong way round"


def test_giou_by_hand() -> None:
    # 50 / 150, around both 15 x 10 = 150: nothing is wasted
    assert giou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    # nothing shared, 200 covered, 30 x 10 around: -(300 - 200) / 300
    assert giou((0, 0, 10, 10), (20, 0, 30, 10)) == pytest.approx(-1 / 3)
    # 6 / 35, 7 x 6 = 42 around: 6 / 35 - 7 / 42
    assert giou((0, 0, 4, 4), (2, 1, 7, 6)) == pytest.approx(6 / 35 - 1 / 6)
    assert giou((1, 2, 3, 4), (1, 2, 3, 4)) == 1.0


def test_the_most_confident_box_takes_first_and_takes_the_best() -> None:
    reference = [(0.0, 0.0, 10.0, 10.0), (2.0, 0.0, 12.0, 10.0)]
    # Overlap of 8/12 with the second and 1 with the first, for the surer one; what is left for the other is 8/12.
    surer, other = Box((0.0, 0.0, 10.0, 10.0), 0.9), Box((0.0, 0.0, 10.0, 10.1), 0.4)
    found = match([other, surer], reference, iou, 0.5)
    assert [m.box for m in found] == [surer, other]
    assert found[0].overlap == 1.0 and found[1].overlap == pytest.approx(80 / 121)
    # Greedy, not optimal: the surer one takes the box that is the other one's only chance.
    greedy = match([Box((1.0, 0.0, 11.0, 10.0), 0.9), Box((0.0, 0.0, 6.0, 10.0), 0.8)], reference[:1], iou, 0.5)
    assert greedy[0].overlap == pytest.approx(9 / 11) and greedy[1].overlap is None


def test_the_measures_by_hand() -> None:
    # 9/11 for the first box; the second of the reference is missed; one is made up.
    text = answer(([1, 0, 11, 10], 0.8), ([50, 50, 60, 60], 0.3))
    assert value("iou", text) == pytest.approx((9 / 11) / 2)
    assert value("recall", text) == 0.5
    assert value("confidence", text) == pytest.approx((0.8 + 0.7) / 2)
    # one box for two: the larger number is that of the reference
    assert value("iou", answer((A, 0.9))) == 0.5
    # three boxes for two: the larger number is that of the answer
    assert value("iou", answer((A, 0.9), (B, 0.9), ([50, 50, 60, 60], 0.1))) == pytest.approx(2 / 3)
    assert value("iou", answer((B, 0.2), (A, 0.1))) == 1.0


def test_giou_of_the_grounding_script_by_hand() -> None:
    assert value("giou", answer((A, 0.5)), ONE) == 2.0
    # -1/3 without any overlap still shows how far off it is
    assert value("giou", answer((B, 0.5)), ONE) == pytest.approx(2 / 3)
    assert value("giou", "<answer>nothing</answer>", ONE) == 0.0
    # two answers for one box: the surer one is compared
    assert value("giou", answer((A, 0.9), (B, 0.1)), ONE) == 1.0


def test_half_of_a_box_is_not_enough() -> None:
    assert value("iou", answer(([0, 0, 5, 10], 0.9)), ONE) == 0.0, "IoU is 0.5, and more is asked for"
    assert value("iou", answer(([0, 0, 5.1, 10], 0.9)), ONE) == pytest.approx(0.51)
    assert judge(Boxes(threshold=0.4), answer(([0, 0, 5, 10], 0.9)), ONE).value == 0.5


def test_right_is_every_box_and_no_other() -> None:
    assert judge(Boxes(), answer((A, 0.1), (B, 0.1)), TWO).status == "ok"
    assert judge(Boxes(), answer((A, 0.9)), TWO).status == "wrong"
    assert judge(Boxes(), answer((A, 0.9), (B, 0.9), ([50, 50, 60, 60], 0.1)), TWO).status == "wrong"


def test_repeated_positions_count_once_the_first_of_them() -> None:
    assert value("confidence", answer((A, 0.3), (A, 0.9)), ONE) == pytest.approx(0.3)
    assert value("iou", answer((A, 0.3), (A, 0.9)), ONE) == 1.0


def test_confidences_are_held_to_the_unit_interval() -> None:
    assert value("confidence", answer((A, 7.0)), ONE) == 1.0
    assert value("confidence", answer((B, -3.0)), ONE) == 1.0


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("[{'Position': [0, 0, 1, 1], 'Confidence': 0.5}]", 1),
        ('```json\n[{"bbox_2d": [0, 0, 1, 1], "confidence": 1}]\n```', 1),
        ('[{"Position": [0, 0, 1, 1], "Confidence": 0.5}, {"Position": [2, 2, 3, 3], "Conf', 1),
        ('[{"Position": [0, 0, 1, 1], "Confidence": 0.5}, {"Position": [2, 2, 3, 3], "Confidence": 0.5}', 2),
        ("[]", 0),
    ],
)
def test_what_is_read(text: str, boxes: int) -> None:
    found = read_boxes(text)
    assert found is not None and len(found) == boxes


@pytest.mark.parametrize(
    "text",
    [
        "no list",
        '[{"Position": [0, 0, 1], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, 1]}]',
        '[{"Position": [0, 0, 1, "1"], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, true], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, NaN], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, 1], "Confidence": Infinity}]',
        '[{"Position": [0, 0, 1, 1e400], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, ' + "9" * 5000 + '], "Confidence": 0.5}]',
        '[{"Position": [0, 0, 1, 1], "Confidence": "high"}]',
        "[[0, 0, 1, 1]]",
        "[" * 100_000 + "]" * 100_000,
        "__import__('os').listdir()[0]",
        json.dumps([{"Position": [i, 0, 1, 1], "Confidence": 0.5} for i in range(2000)]),
    ],
)
def test_what_is_no_list_of_boxes(text: str) -> None:
    assert read_boxes(text) is None
    score = judge(Boxes(), f"<answer>{text}</answer>", ONE)
    assert (score.value, score.status) == (0.0, "wrong")


@pytest.mark.slow
def test_a_million_boxes_are_no_answer() -> None:
    row = json.dumps({"Position": A, "Confidence": 0.9})
    score = judge(Boxes(), f"<answer>[{', '.join([row] * 1_000_000)}]</answer>", ONE)
    assert (score.value, score.status) == (0.0, "wrong")


def test_an_answer_of_several_lines_is_read_and_one_that_is_cut_is_not() -> None:
    lines = answer((A, 0.9)).replace(", ", ",\n")
    assert value("iou", lines, ONE) == 1.0
    cut = lines.removesuffix("</answer>")
    assert judge(Boxes(), cut, ONE, stop_reason="length").value == 0.0
    assert judge(Boxes(), cut, ONE).value == 1.0, "the closing tag may be a stop string"


def test_nothing_is_no_answer_for_any_part() -> None:
    """The release divides by the number of boxes; none at all is an exception there, and 0."""
    for measure in ("iou", "giou", "confidence", "recall"):
        for text in ("", "<think>x</think><answer>[]</answer>", "<think>x</think><answer></answer>"):
            assert value(measure, text) == 0.0


def paper() -> Sum:
    return Sum(parts={"iou": Boxes(), "confidence": Boxes(measure="confidence"), "format": Format()})


def test_one_humble_box_is_rewarded_by_the_confidence_part_alone_and_shows() -> None:
    junk = judge(paper(), answer(([90, 90, 91, 91], 0.0)), TWO)
    honest = judge(paper(), answer((A, 0.9), (B, 0.9)), TWO)
    assert {name: part.value for name, part in junk.parts.items()} == {"iou": 0.0, "confidence": 1.0, "format": 1.0}
    assert junk.value == 2.0 < honest.value == pytest.approx(2.9)
    assert junk.status == "wrong" and honest.status == "ok"


@pytest.mark.parametrize("boxes", [None, [], "boxes", [[1, 2, 3]], [[0, 0, 1, math.nan]]])
def test_a_task_without_boxes_cannot_be_scored(boxes: Any) -> None:
    score: Score = judge(Boxes(), answer((A, 0.9)), Task(key="t", prompt="?", fields={"boxes": boxes}))
    assert score.status == "error" and "field 'boxes'" in score.explanation
