"""Credit within a document."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.document_mean import DocumentMean
from posttrain.components.rollouts import Pointwise
from tests.builders import batch


def test_documents_are_compared_with_themselves() -> None:
    """Rewards 1, 0 of one document and 1, .5 of another: each has the same distance from its mean in its own std."""
    given = batch([[1.0, 0.0, 1.0, 0.5, 0.25]])
    facts = [Pointwise(document=d, stated=s, probability=1.0) for d, s in ((0, 7), (0, None), (1, 3), (1, 5), (2, 5))]
    rows = [replace(t, facts=(f,)) for t, f in zip(given.groups[0], facts, strict=True)]
    given = replace(given, groups=(replace(given.groups[0], trajectories=tuple(rows)),))
    _, credit = DocumentMean()({}, given)
    step = 1 / np.sqrt(2)
    assert [own[0] for own in credit.advantages] == pytest.approx([step, -step, step, -step, 0.0], abs=1e-5)
    assert credit.metrics == pytest.approx({"no_score": 0.2, "stated": 5.0, "stated_std": np.sqrt(2)})
