"""Noise by hand, and the shares of two distributions."""

import math
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.components.annotators import Shown
from posttrain.components.annotators.noise import Noise


def firsts(noise: Noise, gap: float, count: int = 4000) -> float:
    """Share of opinions above the middle."""
    rng = Random(0)
    return sum((noise.opinion(gap, Shown(), rng) or 0.0) > 0 for _ in range(count)) / count


def test_logistic_noise_is_the_model_of_bradley_and_terry() -> None:
    for gap, spread in ((1.0, 1.0), (1.0, 2.0), (-0.5, 0.5)):
        assert firsts(Noise(spread=spread), gap) == pytest.approx(1 / (1 + math.exp(-gap / spread)), abs=0.03)


def test_normal_noise_is_the_model_of_thurstone() -> None:
    assert firsts(Noise(spread=2.0, shape="normal"), 1.0) == pytest.approx(
        0.5 * (1 + math.erf(0.5 / math.sqrt(2))), abs=0.03
    )


def test_a_rate_reverses_at_the_middle_and_takes_one_draw() -> None:
    assert firsts(Noise(rate=0.25, spread=0.0), 1.0) == pytest.approx(0.75, abs=0.03)
    rng, same = Random(5), Random(5)
    found = Noise(rate=0.5, spread=0.0).opinion(2.0, Shown(middle=3.0), rng)
    assert found == (4.0 if same.random() < 0.5 else 2.0) and rng.random() == same.random()
    assert Noise(spread=0.0).opinion(1.5, Shown(), Random(0)) == 1.5


def test_more_than_half_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"less than or equal to 0\.5"):
        Noise(rate=0.6, spread=0.0)
