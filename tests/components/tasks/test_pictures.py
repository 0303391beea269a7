"""Pictures by rule, and their scores by hand."""

import numpy as np
import pytest

from posttrain.components.tasks.pictures import Pictures
from posttrain.datasets.pictures import ASPECTS, drawn, read, scores_of, written

RNG = np.random.default_rng(0)


def test_scores_by_hand() -> None:
    plain = drawn(0.5, -0.7, 0.0, False, RNG)
    assert scores_of(plain, 0.5) == pytest.approx(dict.fromkeys(ASPECTS, 5.0), abs=1e-4)
    assert scores_of(plain, 0.0)["following"] == pytest.approx(3.0, abs=1e-4)
    dull = scores_of(drawn(0.5, 0.2, 0.0, False, RNG), 0.5)
    assert dull["aesthetics"] == pytest.approx(2.0, abs=1e-4)
    light = scores_of(drawn(0.5, 0.5, 0.0, True, RNG), 0.5)
    assert light["harmlessness"] == pytest.approx(1.0, abs=1e-4) and light["aesthetics"] == pytest.approx(1.0, abs=1e-4)
    assert scores_of(drawn(0.5, -0.7, 0.3, False, RNG), 0.5)["fidelity"] == pytest.approx(3.0, abs=0.3)
    assert set(scores_of(drawn(9.0, -9.0, 5.0, True, RNG), 0.0).values()) <= {1.0, 5.0}


def test_a_picture_is_read_as_it_was_written() -> None:
    pixels = drawn(0.5, -0.7, 0.2, True, RNG)
    found = read(written(pixels))
    assert found is not None
    np.testing.assert_allclose(found, pixels, atol=0.0051)
    assert read("1 2") is None and read("a " * 256) is None and read("nan " * 256) is None


def test_candidates_are_for_the_same_prompt_and_of_mixed_quality() -> None:
    tasks = Pictures(size=60).load()
    means = []
    for task in tasks:
        assert len(task.fields["texts"]) == 4 and -1 <= float(str(task.prompt)) <= 1
        pixels = [read(text) for text in task.fields["texts"]]
        means += [np.mean(list(scores_of(p, float(str(task.prompt))).values())) for p in pixels if p is not None]
    assert 2.5 < np.mean(means) < 4.0 and np.std(means) > 0.4
    assert Pictures(size=2, candidates=0).load()[0].fields["texts"] == []
