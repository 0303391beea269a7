"""The ledger: closed forms, sums, refusals, and the accountant of another package."""

import math

import pytest

from posttrain.statistics.privacy import ORDERS, Ledger, best_order, calibrated, joint, rdp


def test_without_subsampling_it_is_the_gaussian_mechanism() -> None:
    for order in (2, 5, 64):
        assert rdp(1.0, 2.0, order) == order / 8.0
        assert rdp(1.0 - 1e-12, 2.0, order) == pytest.approx(order / 8.0)
    assert rdp(0.0, 1.0, 7) == 0.0


def test_order_two_by_hand() -> None:
    """log((1-q)^2 + 2 q (1-q) + q^2 exp(1/sigma^2))."""
    for q, sigma in ((0.1, 1.0), (0.5, 0.7)):
        assert rdp(q, sigma, 2) == pytest.approx(math.log(1 + q * q * (math.exp(sigma**-2) - 1)))


def test_groups_of_equal_noise_are_one_of_less() -> None:
    assert joint([3.0] * 9) == pytest.approx(1.0)
    assert joint([2.0]) == 2.0
    assert joint([1.0, 1e9]) == pytest.approx(1.0)


def test_the_ledger_refuses_the_step_beyond_the_budget() -> None:
    ledger = Ledger(epsilon=2.0, delta=1e-5)
    steps = 0
    while ledger.affords(0.1, 2.0):
        ledger.charge(0.1, 2.0)
        steps += 1
    before = ledger.value
    assert steps > 5 and before <= 2.0
    with pytest.raises(ValueError, match=r"a step with q 0\.1 and sigma 2 would exceed epsilon 2"):
        ledger.charge(0.1, 2.0)
    assert ledger.value == before
    sums = [steps * rdp(0.1, 2.0, a) + math.log(1e5) / (a - 1) for a in ORDERS]
    assert before == pytest.approx(min(sums))
    assert Ledger(epsilon=1.0, delta=1e-5).value == 0.0


def test_one_order_counts_where_settings_depend_on_releases() -> None:
    order = best_order(0.1, 2.0, 20, 1e-5)
    one, every = Ledger(epsilon=50.0, delta=1e-5, order=order), Ledger(epsilon=50.0, delta=1e-5)
    for ledger in (one, every):
        for sigma in (2.0, 1.0, 4.0) * 7:
            ledger.charge(0.1, sigma)
    assert every.value <= one.value == pytest.approx(one.spent[order] + math.log(1e5) / (order - 1))


@pytest.mark.slow
def test_calibrated_noise_is_the_smallest_that_fits() -> None:
    sigma = calibrated(0.05, 200, 4.0, 1e-5)
    ledgers = [Ledger(epsilon=4.0, delta=1e-5) for _ in range(2)]
    for _ in range(200):
        ledgers[0].charge(0.05, sigma)
    with pytest.raises(ValueError, match="would exceed"):
        for _ in range(200):
            ledgers[1].charge(0.05, sigma * 0.99)
    assert calibrated(1.0, 10**9, 1e-4, 1e-5) == math.inf


@pytest.mark.parametrize(("q", "sigma", "order"), [(-0.1, 1.0, 2), (1.1, 1.0, 2), (0.5, 0.0, 2), (0.5, 1.0, 1)])
def test_numbers_out_of_range(q: float, sigma: float, order: int) -> None:
    with pytest.raises(ValueError, match="0 <= q <= 1"):
        rdp(q, sigma, order)


@pytest.mark.slow
def test_it_is_dp_accountings() -> None:
    """The divergences themselves; its epsilon is smaller, since it converts them in a tighter way."""
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    for q, sigma in ((0.01, 0.8), (0.05, 1.0), (0.3, 3.0)):
        accountant = RdpAccountant(orders=[2, 3, 8, 33, 64])
        event = accounting.PoissonSampledDpEvent(q, accounting.GaussianDpEvent(sigma))
        accountant.compose(accounting.SelfComposedDpEvent(event, 10))
        ours = [10 * rdp(q, sigma, a) for a in (2, 3, 8, 33, 64)]
        assert accountant._rdp.tolist() == pytest.approx(ours, rel=1e-6)
        own = min(total + math.log(1e5) / (a - 1) for total, a in zip(ours, (2, 3, 8, 33, 64), strict=True))
        assert accountant.get_epsilon(1e-5) <= own * (1 + 1e-9)
