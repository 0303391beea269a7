"""Dead ends: what is written is found again."""

import pytest

from posttrain.datasets.backtracks import dead_ends, remark, trace

TEXT = """ 5+3=8; 8-2=6
Wait, 6 is not 24. Back to step 1.
8+2=10
Wait, 10 is not 24. Restart.
5-3=2; 2*2=4
Wait, 4 is not 24. Restart.
5+2=7; 7-3=4
#### (5+2)-3"""


def test_paths_with_the_steps_that_are_kept() -> None:
    found = dead_ends(TEXT)
    assert found.paths == (("5+3=8", "8-2=6"), ("5+3=8", "8+2=10"), ("5-3=2", "2*2=4"))
    assert (found.count, found.distinct) == (3, 3)


def test_a_repeated_dead_end_counts_once() -> None:
    once = "1+2=3\nWait, 3 is not 4. Restart.\n"
    assert (dead_ends(once * 3).count, dead_ends(once * 3).distinct) == (3, 1)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("1+2=3", 0),
        ("Wait, 3 is not 4. Restart.", 1),
        ("Wait, 3 is not 4. Back to step 9. Wait, 3 is not 4. Back to step 9.", 2),  # more steps than there are
        ("Wait, 3 is not 4. Back", 0),  # cut off
        (f"Wait, {'9' * 50} is not 4. Restart.", 0),
    ],
)
def test_texts_that_are_no_traces(text: str, count: int) -> None:
    assert dead_ends(text).count == count


def test_written_and_read() -> None:
    dead = [(0, ("5-3=2", "2*2=4")), (1, ("5+3=8", "8-2=6"))]
    text = trace(dead, ("5+3=8", "8*2=16"), 16)
    assert text.splitlines() == ["5-3=2; 2*2=4", remark(4, 16, 0), "5+3=8; 8-2=6", remark(6, 16, 1), "8*2=16"]
    assert dead_ends(text).paths == tuple(path for _, path in dead)
