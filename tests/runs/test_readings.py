import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.runs.readings import TimeLeft, clock, number, readings, sparkline


def test_only_what_was_measured_is_reported() -> None:
    assert readings({"step": 1, "stage": "sft"}, {}) == []
    [loss] = readings({"loss": 0.51234, "learning_rate": 1e-4, "trained_tokens": 100}, {})
    assert (loss.name, loss.value, loss.more, loss.metric) == ("loss", "0.512", ("learning rate 1.0e-04",), "loss")


def test_a_step_of_reinforcement() -> None:
    metrics = {
        "reward": 0.75,
        "reward/exact": 0.5,
        "reward/format": 1.0,
        "completion_tokens": 36.6,
        "truncated": 0.021,
        "zero_variance": 0.5,
        "grader_errors": 0.0,
        "entropy": 1.5,
        "kl/reference": 0.01,
    }
    found = {
        r.name: (r.value, *r.more) for r in readings(metrics, {"tokens_per_second": 1234.5, "peak_memory_bytes": 2**30})
    }
    assert found == {
        "reward": ("0.750", "exact 0.500", "format 1.000"),
        "length": ("37 tokens", "truncated 2 %"),
        "groups": ("zero-variance 50 %",),
        "entropy": ("1.500 nats", "KL reference 0.010"),
        "speed": ("1,234 tokens/s", "1,024 MiB"),
    }


def test_failing_graders_and_lone_divergence_are_shown() -> None:
    found = readings({"reward": 0.5, "grader_errors": 0.25, "kl/teacher": 0.5}, {"peak_memory_bytes": 2**20})
    assert [(r.name, r.value, r.more) for r in found] == [
        ("reward", "0.500", ("grader errors 25 %",)),
        ("divergence", "KL teacher 0.500", ()),
        ("memory", "1 MiB", ()),
    ]


def test_a_number_that_was_not_finite_does_not_break_the_view() -> None:
    assert readings({"loss": None, "reward": None, "reward/exact": None, "entropy": 0.5}, {})[0].name == "entropy"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (0.5, "0.500"),
        (-0.25, "-0.25"),
        (12.34, "12.3"),
        (12345.6, "12,346"),
        (1e-5, "1.0e-05"),
        (None, "-"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_sparkline_by_hand() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 10, 10, 5, 5], 3) == "▁█▅"
    assert sparkline([3, 3, 3], 10) == "▄▄▄"
    assert sparkline([1], 10) == ""
    assert sparkline([1, 2], 0) == ""


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=100), st.integers(2, 40))
def test_sparkline_fits(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(width, len(values))


def test_clock() -> None:
    assert [clock(s) for s in (0, 59.4, 60, 3599, 3600, 90061)] == [
        "0:00",
        "0:59",
        "1:00",
        "59:59",
        "1:00:00",
        "25:01:01",
    ]


def test_time_left_counts_later_stages_and_ignores_a_slow_step() -> None:
    left = TimeLeft({"sft": 10, "rl": 5})
    assert left.after("sft", 1, 2.0) == pytest.approx(14 * 2.0)
    left.after("sft", 2, 2.0)
    assert left.after("sft", 3, 500.0) == pytest.approx(12 * 2.0)
    assert left.after("rl", 1, 10.0) == pytest.approx(4 * 10.0)
    assert left.after("rl", 5, 10.0) == 0.0


def test_time_left_follows_a_change_of_speed() -> None:
    left = TimeLeft({"rl": 1000})
    for step in range(1, 51):
        left.after("rl", step, 1.0)
    for step in range(51, 71):
        estimate = left.after("rl", step, 3.0)
    assert estimate == pytest.approx(930 * 3.0)


def test_imitation_beside_reinforcement() -> None:
    """The losses of both and the share of imitation; or the loss of an update of its own."""
    mixed = {"loss": 0.2, "demonstrated/loss": 1.5, "sampled/loss": -0.1, "share/demonstrated": 0.9}
    [_, reading] = readings(mixed, {})
    assert (reading.name, reading.value, reading.more) == ("imitation", "1.500", ("of rollouts -0.10", "share 90 %"))
    [_, apart] = readings({"loss": 0.2, "experts/loss": 0.5}, {})
    assert (apart.value, apart.more) == ("0.500", ())
