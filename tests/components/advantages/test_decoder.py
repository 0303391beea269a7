"""Three losses of a decoder, by hand and by finite differences, and what it recovers from returns."""

from typing import get_args

import numpy as np
import pytest

from posttrain.components.advantages._decoder import (
    NAMES,
    Form,
    Trainer,
    decoded,
    gradient,
    loss_and_slopes,
    new_weights,
)

FORMS = get_args(Form)


def test_hand_worked() -> None:
    """Rewards 1, 2, 3 of an episode of 3 steps with return 9; two drawn of 6 steps with return 9."""
    r = [np.array([1.0, 2.0, 3.0])]
    assert loss_and_slopes("sum", r, [3], np.array([9.0]))[0] == 9.0
    assert loss_and_slopes("mean", r, [3], np.array([9.0]))[0] == 1.0
    two = [np.array([1.0, 3.0])]
    assert loss_and_slopes("rrd", two, [6], np.array([9.0]))[0] == 0.25
    assert loss_and_slopes("rrd_unbiased", two, [6], np.array([9.0]))[0] == pytest.approx(0.25 - (1 - 2 / 6) / 2 * 2)
    assert loss_and_slopes("rrd_unbiased", two, [1], np.array([1.5]))[0] == 0.25, "no negative weight for K above L"


@pytest.mark.parametrize("form", FORMS)
def test_finite_differences(form: Form) -> None:
    rng = np.random.default_rng(0)
    weights, returns, lengths = new_weights(3, rng), rng.normal(size=2), [6, 4]
    x_NF = rng.normal(size=(5, 3))

    def loss() -> tuple[float, list[np.ndarray]]:
        return loss_and_slopes(form, np.split(decoded(weights, x_NF), [3]), lengths, returns)

    found = gradient(weights, x_NF, np.concatenate(loss()[1]))
    for name in NAMES:
        flat = weights[name].reshape(-1)
        for place in rng.choice(flat.size, size=min(5, flat.size), replace=False):
            kept, losses = flat[place], []
            for step in (1e-6, -1e-6):
                flat[place] = kept + step
                losses.append(loss()[0])
            flat[place] = kept
            assert found[name].reshape(-1)[place] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-6)


def test_the_unbiased_form_has_the_loss_of_all_steps_as_its_expected_value() -> None:
    """Every pair of 6 steps, drawn without replacement: the mean is exact; the biased form is larger."""
    rng = np.random.default_rng(1)
    r, whole = rng.normal(size=6), 2.5
    pairs = [[r[i], r[j]] for i in range(6) for j in range(i)]
    means = {
        form: np.mean([loss_and_slopes(form, [np.array(p)], [6], np.array([whole]))[0] for p in pairs])
        for form in ("rrd", "rrd_unbiased")
    }
    exact = (r.mean() - whole / 6) ** 2
    assert means["rrd_unbiased"] == pytest.approx(exact) and means["rrd"] > exact + 0.01


@pytest.mark.parametrize("form", ["sum", "mean", "rrd"])
def test_an_additive_reward_is_recovered_from_returns(form: Form) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 10, 2))
    truth = x[..., 0] - 0.5 * np.tanh(x[..., 1])
    trainer = Trainer(new_weights(2, rng))
    for _ in range(300):
        place = rng.choice(60, size=32, replace=False)
        trainer.update(form, list(x[place]), truth[place].sum(1), 6, rng)
    held = decoded(trainer.weights, x[60:].reshape(-1, 2))
    assert np.corrcoef(held, truth[60:].reshape(-1))[0, 1] > 0.9
    gap = np.abs(held.reshape(20, 10).sum(1) - truth[60:].sum(1)).mean()
    assert gap < 0.5 * np.abs(truth[60:].sum(1)).mean()


def test_a_trainer_goes_on_from_json() -> None:
    rng = np.random.default_rng(3)
    x = list(rng.normal(size=(4, 3, 2)))
    one = Trainer(new_weights(2, rng))
    one.update("mean", x, np.ones(4), 4, rng)
    other = Trainer.of(one.packed())
    for trainer in (one, other):
        trainer.update("rrd", x, np.ones(4), 9, np.random.default_rng(0))
    assert one.packed() == other.packed()
