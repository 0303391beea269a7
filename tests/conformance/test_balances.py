"""Laws of the balances, for every member on arrival."""

import json
import math

import pytest

from posttrain.components.balances import Balance, Shares
from tests.conformance._members import members

every_member = pytest.mark.parametrize("balance", members(Balance))

MEASURED = {"gradient_norm": 2.0, "experts/gradient_norm": 1.5, "entropy": 0.7, "loss": 0.3}


def play(balance: Balance, *, seed: int = 3, through_json: bool = False) -> list[Shares]:
    """The shares of ten steps, with metrics that change."""
    state, found = balance.start(), []
    for step in range(10):
        state = json.loads(json.dumps(state)) if through_json else state
        found.append(balance.shares(state, seed=seed, step=step, steps=10))
        state = balance.observe(state, {name: value / (1 + step) for name, value in MEASURED.items()})
    return found


@every_member
def test_shares_are_finite_and_not_negative(balance: Balance) -> None:
    for shares in play(balance):
        for share in (shares.sampled, shares.demonstrated):
            assert math.isfinite(share) and share >= 0
        assert shares.sampled or shares.demonstrated, "a step learns from something"


@every_member
def test_the_state_is_json_and_holds_everything(balance: Balance) -> None:
    assert play(balance, through_json=True) == play(balance)


@every_member
def test_nothing_is_written_into_a_state(balance: Balance) -> None:
    state = balance.start()
    before = json.dumps(state)
    balance.shares(state, seed=0, step=0, steps=2)
    balance.observe(state, MEASURED)
    assert json.dumps(state) == before
