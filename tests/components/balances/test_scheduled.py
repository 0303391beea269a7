import pytest

from posttrain.components.balances.scheduled import Scheduled


def mu(balance: Scheduled, step: int) -> float:
    shares = balance.shares(balance.start(), seed=0, step=step, steps=500)
    assert shares.sampled + shares.demonstrated == pytest.approx(1.0)
    return shares.demonstrated


def test_rise_decay_and_valley_by_hand() -> None:
    """W 4 and D 8 between .8 and .2: a quarter of the peak a step, then .5 halfway, then .2."""
    balance = Scheduled(peak=0.8, valley=0.2, warmup=4, decay=8)
    assert [mu(balance, step) for step in (0, 1, 2, 3, 4)] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    assert mu(balance, 8) == pytest.approx(0.5)
    assert mu(balance, 6) == pytest.approx(0.2 + 0.6 * (1 + 2**-0.5) / 2)
    assert [mu(balance, step) for step in (12, 13, 499)] == [0.2] * 3


def test_the_papers_schedule() -> None:
    assert mu(Scheduled(), 0) == pytest.approx(0.9)
    assert mu(Scheduled(), 100) == pytest.approx(0.475)
    assert mu(Scheduled(), 200) == 0.05


def test_without_warm_up_and_decay_it_is_the_valley() -> None:
    assert {mu(Scheduled(decay=0), step) for step in (0, 7)} == {0.05}
