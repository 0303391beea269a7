"""What is asked of models: the same for all, and as stated."""

import math
from pathlib import Path

import numpy as np
import pytest

from posttrain.runs.speed.workloads import (
    CUT,
    GROUP,
    end_probability,
    learning_rate,
    share_of_digits,
    text_of,
    workload,
)


def test_fixed() -> None:
    asked = workload("fixed", 128)
    assert len(asked.prompts) == 16 and set(asked.prompt_lengths) == {32}
    assert {n for own in asked.lengths for n in own} == {64} and {len(own) for own in asked.lengths} == {GROUP}
    assert asked.limit == 64 and end_probability("fixed") == 0.0


def test_ragged_lengths_are_geometric() -> None:
    asked = workload("ragged", 8000)
    lengths = np.array(asked.lengths).ravel()
    assert min(asked.prompt_lengths) == 16 and max(asked.prompt_lengths) == 128
    assert lengths.min() == 1 and lengths.max() == CUT == asked.limit
    # The mean of a geometric length with p = 1/48 that is cut at 256: 48 (1 - (47/48)^256) = 47.78.
    mean = 48 * (1 - (47 / 48) ** 256)
    assert lengths.mean() == pytest.approx(mean, abs=4 * 48 / math.sqrt(8000))
    assert end_probability("ragged") == pytest.approx(1 / 48)


def test_the_same_every_time_and_texts_too() -> None:
    asked, again, other = workload("ragged", 16), workload("ragged", 16), workload("ragged", 16, seed=1)
    assert asked == again != other
    for prompt in asked.prompts:
        text = text_of(prompt)
        assert len(text) == len(prompt) and text.isalpha() and text.encode() == bytes(prompt)


def test_the_reward() -> None:
    assert share_of_digits("a1b2") == 0.5 and share_of_digits("") == 0.0 and share_of_digits("²") == 0.0


def test_larger_models_learn_at_a_lower_rate(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4, "hidden_size": 256}')
    assert learning_rate("fixed", tmp_path) == 1e-4
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "hidden_size": 96}')
    assert learning_rate("fixed", tmp_path) == 1e-4
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 32, "hidden_size": 512}')
    assert learning_rate("fixed", str(tmp_path)) == pytest.approx(6.25e-6)
    assert learning_rate("ragged", tmp_path) == 1e-6
