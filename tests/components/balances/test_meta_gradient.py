import pytest
from pydantic import ValidationError

from posttrain.components.balances import State
from posttrain.components.balances.meta_gradient import MetaGradient


def after(balance: MetaGradient, *measured: dict[str, float]) -> State:
    state = balance.start()
    for metrics in measured:
        state = balance.observe(state, metrics)
    return state


WARM = [{"entropy": entropy} for entropy in (0.2, 0.4, 0.4, 0.5, 0.5)]
"""H* is their mean, .4."""


def test_by_hand() -> None:
    """Slope 2 at rate .1 and an entropy .3 above H* at rate .5: .5 + .2 + .15, or .5 + .2 - .15 as reported."""
    now = {"validation_slope": 2.0, "entropy": 0.7}
    for sign, mu in (("intent", 0.85), ("reported", 0.55)):
        balance = MetaGradient(rate=0.1, entropy_rate=0.5, entropy_sign=sign)  # type: ignore[arg-type]
        assert after(balance, *WARM, now)["mu"] == pytest.approx(mu)


def test_the_warm_up_is_imitation_and_then_mu_stays_within_its_bounds() -> None:
    balance = MetaGradient(warmup=3, rate=1.0, entropy_rate=0.0)
    state = after(balance, *WARM, {"validation_slope": -9.0, "entropy": 0.4})
    shares = [balance.shares(state, seed=0, step=step, steps=9) for step in (0, 2, 3)]
    assert [s.demonstrated for s in shares] == [1.0, 1.0, 0.05]
    assert [s.sampled for s in shares] == [0.0, 0.0, 0.95]
    assert after(balance, *WARM, {"validation_slope": 9.0, "entropy": 0.4})["mu"] == 0.95


def test_without_a_slope_only_the_entropy_moves_it_and_without_both_nothing() -> None:
    balance = MetaGradient(entropy_rate=1.0)
    assert after(balance, *WARM, {"entropy": 0.5})["mu"] == pytest.approx(0.6)
    assert after(balance, *WARM, {"validation_slope": 0.0, "entropy": 0.4})["mu"] == pytest.approx(0.5)
    assert after(balance, {}, {})["mu"] == 0.5


def test_it_finds_the_best_mixture_of_two_quadratics() -> None:
    """Optima at 0 (imitation) and 1 (reinforcement), and a validation whose best point is .3: mu goes to .7."""
    balance, theta = MetaGradient(rate=0.5, entropy_rate=0.0, warmup=0, bounds=(0.0, 1.0)), 0.5
    state = after(balance, *WARM)
    for step in range(400):
        mu = balance.shares(state, seed=0, step=step, steps=400).demonstrated
        g_sft, g_rl = theta, theta - 1.0
        theta -= 0.1 * (mu * g_sft + (1 - mu) * g_rl)
        slope = (theta - 0.3) * (g_sft - g_rl)
        state = balance.observe(state, {"validation_slope": slope, "entropy": 0.4})
    assert theta == pytest.approx(0.3, abs=1e-3) and mu == pytest.approx(0.7, abs=1e-3)


def test_mu_lies_between_the_bounds() -> None:
    with pytest.raises(ValidationError, match="within its bounds"):
        MetaGradient(mu=0.5, bounds=(0.6, 0.9))
