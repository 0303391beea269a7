"""Ideas, their scores, and sections with goals."""

import numpy as np
import pytest

from posttrain.components.tasks.ideas import DIMENSIONS, SECTIONS, Ideas, share
from posttrain.settings.steered_ideas import RATERS


def test_scores_follow_the_share_of_a_letter() -> None:
    assert share(" nxn. fff.", "n") == pytest.approx(2 / 6) and share("", "n") == 0.0
    for task in Ideas(size=50).load():
        for name, letter in DIMENSIONS.items():
            assert task.fields[name] == pytest.approx(1 + 4 * share(task.demonstrations[0], letter), abs=0.006)
    noisy = [task.fields["novelty"] for task in Ideas(size=200, annotators=RATERS).load()]
    assert min(noisy) >= 1.0 and max(noisy) <= 5.0


def test_sections_have_goals() -> None:
    for sections, least, most in ((True, 0.6, 0.8), (False, 0.15, 0.35)):
        rows = [t.demonstrations[0].split(".") for t in Ideas(size=200, sections=sections).load()]
        for i, letter in enumerate(SECTIONS):
            assert least < np.mean([share(row[i], letter) for row in rows]) < most
