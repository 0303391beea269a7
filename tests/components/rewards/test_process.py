"""Clip and delta, by hand, and what padding gives."""

import itertools
import random

import pytest

from posttrain.components.rewards.equations import Equations
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.process import Process, shaped
from posttrain.types import Score, Task
from tests.components.rewards.judging import judge

TASK = Task(key="sum", prompt="Q: 47+35-8\nA:", answer="74")
STEPS = " 47+35=82; 82-8=74\n#### 74"


@pytest.mark.parametrize(
    ("eta", "delta", "rewards"),
    [
        (None, False, [0.9, 0.4, 0.7, 0.8]),
        (0.6, False, [0.0, -0.2, 0.0, 0.0]),
        (None, True, [0.5, -0.3, 0.7, 0.0]),
        (0.6, True, [0.2, -0.2, 0.0, 0.0]),
    ],
)
def test_by_hand(eta: float | None, delta: bool, rewards: list[float]) -> None:
    assert shaped([0.9, 0.4, 0.7, 0.8], eta, delta) == pytest.approx(rewards)


@pytest.mark.parametrize(("count", "rewards"), [(0, []), (1, [0.0]), (2, [0.5, 0.0])])
def test_few_steps(count: int, rewards: list[float]) -> None:
    assert shaped([0.5] * count, None, True) == rewards


def test_returns_telescope_on_random_scores() -> None:
    """From step k < K to the end: r_k with delta, min(r_k - eta, 0) with both; 0 from step K."""
    rng = random.Random(0)
    for _ in range(3000):
        scores = [rng.random() for _ in range(rng.randint(1, 9))]
        eta = rng.choice([None, rng.random()])
        kept = scores if eta is None else [min(score - eta, 0.0) for score in scores]
        returns = list(itertools.accumulate(reversed(shaped(scores, eta, True))))[::-1]
        assert returns == pytest.approx([*kept[:-1], 0.0])


def test_trivial_steps_grow_the_raw_sum_only() -> None:
    """The cheat: m trivial steps give 0.2 * 0.95 m more raw, and nothing with clip, delta, or both."""

    def value(steps: int, **settings: object) -> float:
        text = STEPS.replace("; 82-8", "; 82+0=82" * steps + "; 82-8")
        return judge(Process(correct=Match(), steps=Equations(), **settings), text, TASK).value  # type: ignore[arg-type]

    raw = [value(m) for m in range(4)]
    assert [b - a for a, b in itertools.pairwise(raw)] == pytest.approx([0.19] * 3)
    assert raw[0] == pytest.approx(1 + 0.2 * (0.95 + 0.95 + 0.5))
    assert [value(m, delta=True) for m in range(4)] == pytest.approx([1.19] * 4)
    assert [value(m, eta=0.5) for m in range(4)] == [value(m, eta=0.5, delta=True) for m in range(4)] == [1.0] * 4


def test_spans_are_at_the_ends_of_steps_and_repeated_steps_are_counted() -> None:
    text = " 1+1=2; 2+0=2; 2+0=2\n#### 74"
    found = judge(Process(correct=Match(), steps=Equations()), text, TASK)
    assert [text[a:b] for a, b, _, _ in found.spans] == ["1+1=2;", "2+0=2;", "2+0=2", "#### 74"]
    assert found.parts["steps"].value == 4 and found.parts["repeated"].value == 1
    again = judge(Process(correct=Match(), steps=Equations()), text.replace("\n", "; 2+0=2;\n"), TASK)
    assert again.parts["repeated"].value == 2


def test_an_error_of_either_is_an_error() -> None:
    assert judge(Process(correct=Match(), steps=Equations()), STEPS, Task(key="bare", prompt="?")).status == "error"
    assert judge(Process(correct=Equations(), steps=Match()), STEPS, Task(key="bare", prompt="?")).status == "error"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 47+35=82; 82-8=74", 0.95),
        (" 47+35=82; 82-8=73;", 0.05),
        (" 47+35=82; 82-8=74\n#### 74", 0.5),
        ("", 0.5),
        ("1=1=1", 0.5),
        ("1/0=1", 0.5),
        (f"{'1+' * 400}1=401", 0.5),
    ],
)
def test_equations(text: str, value: float) -> None:
    found: Score = judge(Equations(), text)
    assert found.value == value and (found.status == "ok") == (value == 0.95)
