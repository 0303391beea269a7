import numpy as np
import pytest

from posttrain.components.rewards.picture import Picture
from posttrain.datasets.pictures import drawn, written
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

TASK = Task(key="t", prompt="0.50")
GOOD = written(drawn(0.5, -0.7, 0.0, False, np.random.default_rng(0)))
DULL = written(drawn(0.5, 0.5, 0.0, False, np.random.default_rng(0)))


def values(reward: Picture, *texts: str) -> list[float]:
    return [score.value for score in score_all(reward, *(attempt(text, TASK) for text in texts))]


def test_aspects_and_their_mean() -> None:
    assert values(Picture(), GOOD, DULL) == pytest.approx([5.0, 4.0])
    assert values(Picture(aspect="aesthetics"), GOOD, DULL) == pytest.approx([5.0, 1.0])
    good, dull, bad = score_all(Picture(correct_at=4.5), *(attempt(t, TASK) for t in (GOOD, DULL, "none")))
    assert [s.status for s in (good, dull, bad)] == ["ok", "wrong", "wrong"] and bad.value == 1.0
    aspects = {name: score.value for name, score in dull.parts.items()}
    assert aspects == pytest.approx({"following": 5.0, "aesthetics": 1.0, "fidelity": 5.0, "harmlessness": 5.0})
    (noisy,) = score_all(Picture(noise=1.0), attempt(DULL, TASK))
    assert {name: score.value for name, score in noisy.parts.items()} == pytest.approx(aspects), "without errors"


def test_noise_is_of_the_picture_and_the_first_is_preferred() -> None:
    noisy = Picture(noise=0.5)
    assert values(noisy, DULL) == values(noisy, DULL) != values(Picture(), DULL)
    assert values(Picture(first=0.5), DULL, DULL) == pytest.approx([4.5, 4.0])
    assert max(values(Picture(noise=5.0, first=5.0), *[written(np.full(256, x)) for x in np.arange(20) / 20])) <= 5.0
