"""Schedules by hand."""

import pytest

from posttrain.components.schedules import Schedule
from posttrain.components.schedules.constant import Constant
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.schedules.linear import Linear


@pytest.mark.parametrize(
    ("schedule", "progress", "factor"),
    [
        (Constant(), 0.0, 1.0),
        (Constant(), 0.99, 1.0),
        (Linear(), 0.0, 1.0),
        (Linear(), 0.25, 0.75),
        (Linear(final=0.1), 0.5, 0.55),
        (Linear(warmup=0.5), 0.75, 0.5),
        (Cosine(), 0.0, 1.0),
        (Cosine(), 0.5, 0.5),
        (Cosine(), 0.25, 0.8535534),
        (Cosine(final=0.2), 0.5, 0.6),
    ],
)
def test_factor(schedule: Schedule, progress: float, factor: float) -> None:
    assert schedule.factor(progress) == pytest.approx(factor, abs=1e-6)


@pytest.mark.parametrize("kind", Schedule.kinds())
def test_warm_up_rises_from_above_zero_to_the_peak_and_never_beyond(kind: str) -> None:
    schedule = Schedule.find(kind)(warmup=0.2)  # type: ignore[call-arg]
    rise = [schedule.factor(i / 100) for i in range(20)]
    assert rise == sorted(rise)
    assert 0.0 < rise[0] < 0.01
    assert schedule.factor(0.2) == pytest.approx(1.0)
    assert all(0.0 <= schedule.factor(i / 100) <= 1.0 for i in range(100))
