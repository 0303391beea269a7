from collections.abc import Iterable

import pytest

from posttrain.components.balances import State
from posttrain.components.balances.coin import Coin


def played(coin: Coin, norms: Iterable[float], seed: int = 0) -> tuple[list[bool], list[float]]:
    """For each step whether it imitates, and the probability before it, where `norms` are what imitation would show."""
    state: State = coin.start()
    imitated, probabilities = [], []
    for step, norm in enumerate(norms):
        shares = coin.shares(state, seed=seed, step=step, steps=1000)
        assert {shares.sampled, shares.demonstrated} == {0.0, 1.0}
        imitated.append(shares.demonstrated == 1.0)
        probabilities.append(coin.probability(state))
        state = coin.observe(state, {"share/demonstrated": shares.demonstrated, "gradient_norm": norm})
    return imitated, probabilities


def test_the_warm_up_imitates_and_its_last_five_norms_are_the_reference() -> None:
    """Norms 9 9 1 2 3 4 5 in the warm-up: the reference is 3 and the newest is 5, so p = 5 / (5 + 2 x 3)."""
    coin = Coin(warmup=7, gamma=2.0)
    imitated, probabilities = played(coin, [9, 9, 1, 2, 3, 4, 5, 5])
    assert imitated[:7] == [True] * 7
    assert probabilities[7] == pytest.approx(5 / 11)


def test_the_share_falls_with_the_norm() -> None:
    imitated, probabilities = played(Coin(warmup=10), [1.0] * 10 + [0.25] * 990)
    assert probabilities[10] == 0.5 and probabilities[-1] == pytest.approx(0.2)
    assert 0.15 < sum(imitated[100:]) / 900 < 0.25


def test_after_a_drift_it_returns_only_with_a_refresh() -> None:
    """The norm has fallen to 1e-9 when the policy drifts: the coin never finds out, unless it measures again."""
    norms = [1.0] * 10 + [1e-9] * 40 + [4.0] * 200
    blind, unseen = played(Coin(warmup=10), norms)
    assert not any(blind[-200:]) and unseen[-1] < 1e-6
    seeing, seen = played(Coin(warmup=10, refresh=20), norms)
    assert seen[-1] == pytest.approx(0.8) and sum(seeing[-100:]) > 60
    rest = seeing[10:50]
    assert max(len(run) for run in "".join("i" if i else "r" for i in rest).split("i")) <= 20


def test_0_over_0_is_reinforcement() -> None:
    """And u < p is strict: with p = 0 even a u of 0 is reinforcement."""
    imitated, probabilities = played(Coin(warmup=3), [0.0] * 200)
    assert probabilities[3:] == [0.0] * 197 and not any(imitated[3:])


def test_the_draws_are_of_the_seed_and_the_step() -> None:
    norms = [1.0] * 60
    assert played(Coin(warmup=5), norms, seed=1) == played(Coin(warmup=5), norms, seed=1)
    assert played(Coin(warmup=5), norms, seed=1) != played(Coin(warmup=5), norms, seed=2)
