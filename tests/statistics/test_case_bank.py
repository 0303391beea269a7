"""Cases by likeness, by a trained selector and by values, with numbers by hand."""

import math

import numpy as np
import pytest

from posttrain.statistics.case_bank import (
    Case,
    Selector,
    Values,
    best,
    case_of,
    class_weights,
    features,
    fitted,
    likeness,
    loss_of,
    new_selector,
    vector_of,
)


def case(*key: float) -> Case:
    return Case(query="", plan="", right=True, key_D=np.array(key), both_D=np.array(key))


def test_likeness_is_the_cosine_and_equals_keep_their_order() -> None:
    found = likeness(np.array([0.6, 0.8]), [case(1.0, 0.0), case(0.0, 1.0), case(0.6, 0.8), case(1.0, 0.0)])
    assert found.tolist() == pytest.approx([0.6, 0.8, 1.0, 0.6])
    assert best(found, 3) == [2, 1, 0] and best(found, 9) == [2, 1, 0, 3] and best(found, 0) == []


def test_vectors_have_length_one_and_know_no_case() -> None:
    one, other = vector_of("Red box"), vector_of("red box")
    assert np.array_equal(one, other) and np.linalg.norm(one) == pytest.approx(1.0)
    assert not vector_of("").any() and abs(one @ vector_of("12 + 7")) < 0.5 < one @ vector_of("red boxes")
    assert not np.array_equal(case_of("a b c", "x y z", True).both_D, case_of("a b c", "q", True).both_D)


def test_class_weights() -> None:
    """Three wrong to one right: 3 for the right one; never below 1; none where a class is missing."""
    assert class_weights(np.array([0, 0, 0, 1])) == (1.0, 3.0)
    assert class_weights(np.array([0, 1, 1, 1])) == (1.0, 1.0)
    assert class_weights(np.array([1, 1])) == class_weights(np.array([0, 0])) == (1.0, 1.0)


def test_the_loss_is_a_weighted_mean() -> None:
    """Logits 0 and log 3 for every row: -log(3/4) if right, -log(1/4) if wrong; weights 1 and 2 of one each."""
    fixed = Selector(
        w1_EH=np.zeros((2, 3)), b1_H=np.zeros(3), w2_H2=np.zeros((3, 2)), b2_2=np.array([0.0, math.log(3)])
    )
    loss, _ = loss_of(fixed, np.ones((2, 2)), np.array([0, 1]), (1.0, 2.0))
    assert loss == pytest.approx((math.log(4) + 2 * math.log(4 / 3)) / 3)
    assert fixed.chance(np.ones((1, 2))).tolist() == pytest.approx([0.75])


def test_gradients_by_finite_differences() -> None:
    rng = np.random.default_rng(0)
    selector, x, y = new_selector(4, rng, hidden=5), rng.normal(size=(6, 4)), np.array([0, 1, 1, 0, 0, 0])
    kept = rng.random((6, 5)) * 2
    _, gradients = loss_of(selector, x, y, (1.0, 2.0), kept)
    for part, gradient in zip(selector.parts, gradients, strict=True):
        for place in np.ndindex(part.shape):
            found = []
            for move in (1e-6, -1e-6):
                part[place] += move
                found.append(loss_of(selector, x, y, (1.0, 2.0), kept)[0])
                part[place] -= move
            assert gradient[place] == pytest.approx((found[0] - found[1]) / 2e-6, abs=1e-7)


def test_a_trained_selector_prefers_what_was_useful() -> None:
    """Cases of the query's own kind were useful; the other half of the vectors is noise."""
    rng = np.random.default_rng(1)
    kinds = np.eye(4)

    def drawn() -> tuple[int, np.ndarray]:
        kind = int(rng.integers(4))
        return kind, np.concatenate([kinds[kind], rng.normal(size=4)])

    pairs = [(drawn(), drawn()) for _ in range(600)]
    rows = np.array([features(query, [case(*key)])[0] for (_, key), (_, query) in pairs])
    labels = np.array([int(a == b) for (a, _), (b, _) in pairs])
    selector = fitted(rows, labels, seed=0, epochs=10)
    assert np.array_equal(fitted(rows, labels, seed=0, epochs=10).w1_EH, selector.w1_EH), "it repeats"
    new = [(drawn(), drawn()) for _ in range(200)]
    scores = np.array([selector.scores(query, [case(*key)])[0] for (_, key), (_, query) in new])
    same = np.array([a == b for (a, _), (b, _) in new])
    assert scores[same].mean() > scores[~same].mean() + 0.3
    alone = fitted(rows[:3], np.ones(3, int), seed=0)
    assert np.isfinite(alone.chance(rows)).all(), "a class may be missing"


def test_values_by_hand() -> None:
    """Outcomes 1 at cosine 1 and 0 at cosine 0.8, with width 0.2: weights 1, 1 / e and 0.01."""
    values = Values(width=0.2, alpha=0.5)
    values.stored(1, np.array([1.0, 0.0]), 1.0)
    values.stored(1, np.array([0.8, 0.6]), 0.0)
    q = values.q(np.array([1.0, 0.0]), 2)
    assert q.tolist() == pytest.approx([0.0, 1 / (1 + math.exp(-1) + 0.01)])


def test_chances_and_the_soft_maximum() -> None:
    """Values 0 and 0.5 log 3 with alpha 0.5: chances 1/4 and 3/4; V = 0.5 log 4."""
    values, q = Values(alpha=0.5), np.array([0.0, 0.5 * math.log(3)])
    assert values.chances(q).tolist() == pytest.approx([0.25, 0.75])
    assert values.value(q) == pytest.approx(0.5 * math.log(4))
    rng = np.random.default_rng(0)
    first = [values.drawn(q, 1, rng)[0] for _ in range(2000)]
    assert np.mean(first) == pytest.approx(0.75, abs=0.04) and sorted(values.drawn(q, 5, rng)) == [0, 1]
