"""Quotations, some of which are invented."""

from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.feedback import INVENTED, Feedback
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.several import Several
from posttrain.components.tasks.reviewed_replies import ReviewedReplies
from posttrain.grading.feedback import entries


def test_a_share_of_the_quotations_is_invented() -> None:
    rng = Random(0)
    found = [Feedback(invented=0.1).quotation("it is short", rng) for _ in range(3000)]
    assert set(found) == {"it is short", INVENTED}
    assert found.count(INVENTED) / 3000 == pytest.approx(0.1, abs=0.02)
    assert Feedback().opinion(1.0, Shown(), Random(0)) == 1.0


def test_what_is_invented_is_no_evidence() -> None:
    for invented, left in ((0.0, 2), (1.0, 0)):
        annotator = Several(parts=(Noise(rate=0.2, spread=0.0), Feedback(invented=invented)))
        for task in ReviewedReplies(size=20, annotators=(annotator,)).load():
            (own,) = task.fields["feedback"]
            assert len(entries(own)) == left
