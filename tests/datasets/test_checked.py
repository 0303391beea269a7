"""What rollouts become, on rollouts that are written out."""

from typing import Any

import numpy as np
import pytest

from posttrain.datasets.checked import Checked, Use, checked_of, make, reason_of
from posttrain.types import Preference, Score, Segment, Task, Trajectory


def rollout(text: str, tokens: int = 4, *, right: bool = True, value: float | None = None, sample: int = 0) -> Checked:
    return Checked(text=text, tokens=tokens, right=right, value=float(right) if value is None else value, sample=sample)


def wrong(text: str, tokens: int = 4, **more: Any) -> Checked:
    return rollout(text, tokens, right=False, **more)


def test_a_pair_only_where_both_kinds_are() -> None:
    assert make([rollout("a"), rollout("b")], "pairs") is None
    assert make([wrong("a"), wrong("b")], "pairs") is None
    assert make([], "pairs") is None
    made = make([wrong("a", sample=0), rollout("b", sample=1), rollout("c", sample=2)], "pairs", most=5)
    assert made is not None and made.preferences == (Preference(chosen="b", rejected="a"),)
    assert [origin["sample"] for origin in made.origin] == [1, 0]
    many = make([wrong("a"), rollout("b"), wrong("c"), rollout("d")], "pairs", most=2)
    assert many is not None and [(p.chosen, p.rejected) for p in many.preferences] == [("b", "a"), ("d", "c")]


def test_the_shortest_right_one_against_one_half_as_long_again() -> None:
    """Of 4 tokens, 6 is long enough and 5 is not; the longest is rejected, right or wrong."""
    assert make([rollout("a", 4), rollout("b", 5), wrong("c", 5)], "shortest") is None
    assert make([wrong("a", 4), wrong("b", 9)], "shortest") is None
    made = make([rollout("a", 4), rollout("b", 6), wrong("c", 9), rollout("d", 5)], "shortest", most=2)
    assert made is not None and [(p.chosen, p.rejected) for p in made.preferences] == [("a", "c"), ("a", "b")]


def test_the_best_of_several_the_first_of_equals() -> None:
    made = make([rollout("a", value=0.2), rollout("b", value=0.9), rollout("c", value=0.9)], "best_of")
    assert made is not None and (made.demonstrations, made.origin[0]["value"]) == (("b",), 0.9)
    assert make([], "best_of") is None


@pytest.mark.parametrize(
    ("rollouts", "use", "reason"),
    [
        ([], "best_of", "no rollout ended and could be scored"),
        ([rollout("a"), rollout("b")], "pairs", "every rollout is correct"),
        ([wrong("a")], "pairs", "no rollout is correct"),
        ([wrong("a")], "solved", "no rollout is correct"),
        ([rollout("a", 4), rollout("b", 5)], "shortest", "no rollout is 1.5 times as long as the shortest correct one"),
        ([rollout("a"), wrong("b")], "modes", "no rollout thinks"),
        ([rollout("<think>a</think>")], "modes", "every rollout thinks"),
        ([wrong("<think>a</think>"), wrong("b")], "modes", "no rollout is correct"),
    ],
)
def test_a_task_that_gives_nothing_has_a_reason(rollouts: list[Checked], use: Use, reason: str) -> None:
    assert make(rollouts, use) is None and reason_of(rollouts, use) == reason


def thought(text: str, **more: Any) -> Checked:
    return rollout(f"<think>{text}</think>", **more)


@pytest.mark.parametrize(
    ("on", "off", "mode"),
    [((1, 1), (1, 0), "on"), ((1, 0), (1, 0), "off"), ((1, 0), (1, 1), "off"), ((0, 0), (1, 0), "off")],
)
def test_the_mode_that_is_rewarded_and_without_thinking_where_both_do(
    on: tuple[int, int], off: tuple[int, int], mode: str
) -> None:
    rollouts = [thought(f"t{i}", tokens=9 - i, right=bool(r)) for i, r in enumerate(on)]
    rollouts += [rollout(f"<think>\n</think>p{i}", tokens=5 - i, right=bool(r)) for i, r in enumerate(off)]
    made = make(rollouts, "modes")
    assert made is not None and made.mode == mode
    right = [a for a in rollouts if a.right and ("t" in a.text.removeprefix("<think>")[:1]) == (mode == "on")]
    assert made.demonstrations == (min(right, key=lambda a: a.tokens).text,)
    assert made.origin[0]["rates"] == {"on": sum(on) / 2, "off": sum(off) / 2}


def test_a_mode_needs_rollouts_of_both_and_a_right_one() -> None:
    assert make([thought("a"), thought("b")], "modes") is None
    assert make([thought("a", right=False), wrong("b")], "modes") is None


def trajectory(text: str, score: Score | None, stop: Any = "stop") -> Trajectory:
    segment = Segment(actor="policy", token_ids=np.arange(len(text)), trained=True, text=text)
    return Trajectory(task=Task(key="k", prompt="p"), segments=(segment,), stop_reason=stop, score=score)


def test_rollouts_that_count() -> None:
    """Cut ones, failed ones and repeated texts are left out; numbers are those of the samples."""
    ok, error = Score(value=1.0, status="ok"), Score(value=float("nan"), status="error")
    found = checked_of(
        [
            trajectory("a", ok),
            trajectory("b", ok, "length"),
            trajectory("c", error),
            trajectory("a", ok),
            trajectory("dd", ok),
        ],
        "reference",
        first=4,
    )
    assert [(a.text, a.sample, a.tokens, a.writer) for a in found] == [
        ("a", 4, 1, "reference"),
        ("dd", 8, 2, "reference"),
    ]


def test_every_correct_one_up_to_most() -> None:
    own = [rollout("a", value=0.5, right=False), rollout("b"), rollout("c"), rollout("d")]
    made = make(own, "solved", most=2)
    assert made is not None and made.demonstrations == ("b", "c")
    assert make(own[:1], "solved", most=2) is None
