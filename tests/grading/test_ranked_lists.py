"""Rankings of passages: what is read, each measure by hand, and windows."""

from math import log2

import pytest

from posttrain.grading.ranked_lists import (
    answer_of,
    average_overlap,
    is_order,
    is_plain,
    ndcg,
    read_ids,
    recall,
    repaired,
    slide,
    windows,
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so <think>a</think> then <answer>2>1</answer> end", "2>1"),
        ("<think>a</think><answer>1</answer><answer>2</answer>", "1"),
        ("<answer>2</answer><think>a</think>", None),
        ("<think>a</think><answer>2", None),
        ("<think>a<answer>2</answer></think>", None),
        ("", None),
    ],
)
def test_tags(text: str, answer: str | None) -> None:
    assert answer_of(text) == answer


def test_numbers() -> None:
    assert read_ids("[2] > [10], one of 3") == [2, 10, 3] and read_ids("9" * 30) == [0] and read_ids("none") == []
    assert is_plain("[2] > [1],\n3;") and not is_plain("2 > b") and not is_plain("²")
    assert is_order([2, 1, 3], 3) and not any(is_order(ids, 3) for ids in ([1, 2], [1, 2, 2], [0, 1, 2], [1, 2, 4]))


def test_measures_by_hand() -> None:
    # relevant on ranks 1 and 3: 1 + 1 / log2(4) of the best, 1 + 1 / log2(3)
    assert ndcg([4, 1, 2, 3], {4, 2}, 10) == pytest.approx(1.5 / (1 + 1 / log2(3)))
    assert ndcg([1, 3, 2, 4], {4}, 3) == 0.0 and ndcg([4, 2, 1, 3], {2, 4}, 10) == 1.0
    assert ndcg([1, 2, 3], {1, 2, 3}, 2) == 1.0  # no more ranks than are counted
    assert recall([1, 2, 3, 4], {1, 4}, 2) == 0.5
    # depths 1 to 3 have 0, 1 and 3 in both
    assert average_overlap([1, 2, 3], [2, 3, 1]) == pytest.approx((0 / 1 + 1 / 2 + 3 / 3) / 3)
    assert average_overlap([1, 2], [1, 2]) == 1.0


def test_repair() -> None:
    assert repaired([3, 3, 9, 0, 1], 4) == [3, 1, 2, 4] and repaired([], 3) == [1, 2, 3]


def test_windows_by_hand() -> None:
    assert windows(100, 20, 10)[:2] == [(80, 100), (70, 90)] and windows(100, 20, 10)[-1] == (0, 20)
    assert windows(25, 20, 10) == [(5, 25), (0, 15)] and windows(20, 20, 10) == [(0, 20)]
    assert windows(8, 20, 10) == [(0, 8)]


def test_the_last_is_lifted_to_the_top_where_windows_overlap() -> None:
    def last_first(own: object) -> list[int]:
        numbers = list(own)  # type: ignore[call-overload]
        return [numbers.index(100) + 1] if 100 in numbers else []

    assert slide(range(1, 101), last_first, 20, 10)[0] == 100
    assert slide(range(1, 101), last_first, 20, 20).index(100) == 80  # rank 81
