import pytest

from posttrain.runs.amounts import amount, difference, plain_number, probability, size, unit_of, with_interval


@pytest.mark.parametrize(
    ("measure", "unit"),
    [
        ("accuracy_after", "share"),
        ("evaluation.accuracy:mean", "share"),
        ("rl/completion_tokens:last", "tokens"),
        ("seconds", "seconds"),
        ("peak_memory_bytes", "bytes"),
        ("rl/reward:reached0.8", "steps"),
        ("reward/pioneer|reward:last5", "number"),
        ("evaluation.calibration.brier", "number"),
    ],
)
def test_units(measure: str, unit: str) -> None:
    assert unit_of(measure) == unit


def test_amounts_by_unit() -> None:
    assert amount(0.4151, "share") == "41.5 %"
    assert amount(1234567.0, "tokens") == "1,234,567"
    assert amount(185.0, "seconds") == "3 min 5 s"
    assert amount(3 * 2**20, "bytes") == "3 MiB"
    assert with_interval(0.5, [0.25, 0.75], "share") == "50.0 % [25.0, 75.0]"
    assert with_interval(0.875, [-0.02, 1.193], "share") == "87.5 % [0.0, 100.0]", "no share is beyond 100 %"
    assert with_interval(12.5, [2.0, 23.0], "seconds") == "12.5 s [2.0 s, 23.0 s]"
    assert with_interval(0.5, None, "number") == "0.5"


def test_differences_never_show_an_end_as_zero_that_is_not() -> None:
    assert difference(0.042, [0.004, 0.08], "share") == "+4.2 points [+0.4, +8.0]"
    assert difference(0.042, [0.0002, 0.08], "share") == "+4.2 points [+0.02, +8.0]"
    assert difference(-1234.0, None, "tokens") == "-1,234 tokens"
    assert difference(0.0, [-0.5, 0.5], "number") == "0 [-0.5, +0.5]"
    assert size(-0.031, "share") == "3.1 points"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.25, "0.25"), (0.00012345, "0.0001234"), (1234.5678, "1,235"), (-2.5, "-2.5"), (2e-7, "2e-07")],
)
def test_plain_numbers(value: float, text: str) -> None:
    assert plain_number(value) == text


@pytest.mark.parametrize(
    ("p", "text"), [(0.0004, "< 0.001"), (0.0132, "= 0.013"), (0.0498, "= 0.0498"), (0.05, "= 0.05"), (0.5, "= 0.5")]
)
def test_p_values_are_not_rounded_across_the_bound(p: float, text: str) -> None:
    assert probability(p) == text
