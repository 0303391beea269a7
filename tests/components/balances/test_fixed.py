import pytest
from pydantic import ValidationError

from posttrain.components.balances import Shares
from posttrain.components.balances.fixed import Fixed


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_the_rest_is_for_reinforcement(mu: float) -> None:
    assert Fixed(mu=mu).shares({}, seed=0, step=3, steps=9) == Shares(sampled=1 - mu, demonstrated=mu)


@pytest.mark.parametrize("mu", [-0.1, 1.1])
def test_it_is_a_share(mu: float) -> None:
    with pytest.raises(ValidationError):
        Fixed(mu=mu)
