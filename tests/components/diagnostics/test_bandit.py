"""Tables and what moves them: the reference, each loss by hand, and on whose samples the far peak is found."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cli._component import part_named
from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._bandit import LOSSES, Game, Seen, on_pairs, reference_K, reward_K, train
from posttrain.components.diagnostics.bandit import Bandit
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.ipo import IPO
from posttrain.errors import UserError


def found(*names: str, **settings: Any) -> dict[str, Any]:
    def unused(*_: Any) -> Any:
        raise AssertionError("no model is loaded")

    subjects = [Subject(name=n, load=unused, serve=unused, component=partial(part_named, name=n)) for n in names]
    given = {"seeds": 3, "epochs": 40, "contexts": 4, "rates": (0.3,), **settings}
    return dict(Bandit(**given).examine(*subjects).values["found"])


def seen(logp: list[float], reward: list[float], advantage: list[float] | None = None) -> Seen:
    row = torch.tensor([logp], dtype=torch.float64)
    return Seen(
        logp_CN=row,
        old_logp_CN=torch.full_like(row, -1.0),
        reference_logp_CN=torch.full_like(row, -2.0),
        reward_CN=torch.tensor([reward], dtype=torch.float64),
        advantage_CN=torch.tensor([advantage or [0.0] * len(logp)], dtype=torch.float64),
    )


def test_the_reference_and_the_reward_by_hand() -> None:
    p_K = reference_K()
    assert p_K.sum() == pytest.approx(1.0) and p_K.min() > 0.0
    # the median of the Cauchy variable is -0.7, and tanh(-0.7) = -0.604 lies in bin 19
    assert p_K[:19].sum() < 0.5 < p_K[:20].sum()
    assert reward_K(70, 10)[[70, 60, 20]].tolist() == pytest.approx([1.0, math.exp(-1), math.exp(-25)])


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("best_of_n", 2.0),  # -log p of the best, the second
        ("best_against_others", 2.0 + 0.1 * (-1.0 - 3.0) / 2),
        ("rwr", (1.0 * math.exp(-5) + 2.0 + 3.0 * math.exp(-10)) / 3),  # exp((r - 1) / 0.1)
        ("reinforce", -(0.0 * -1 + 1.5 * -2 - 1.5 * -3) / 3),
        ("reinforce_positive", -(1.5 * -1 + 3.0 * -2 + 0.0) / 3),
        # ratios 1, e^-1, e^-2: the second is not clipped from below with A > 0, the third is clipped to 0.8 with A < 0
        ("ppo", -(0.0 + 1.5 * math.exp(-1) - 1.5 * 0.8) / 3),
    ],
)
def test_losses_by_hand(name: str, loss: float) -> None:
    of = LOSSES[name](seen([-1.0, -2.0, -3.0], [0.5, 1.0, 0.0], [0.0, 1.5, -1.5]))
    assert of.tolist() == pytest.approx([loss])


def test_preference_losses_take_all_pairs_but_ties() -> None:
    rows = seen([-1.0, -2.0, -3.0], [1.0, 0.0, 0.0])
    # against the reference (-2 each) h is 1 and 2; the tie of the others is no pair
    assert on_pairs(IPO(beta=0.5))(rows).tolist() == pytest.approx([((1 - 1) ** 2 + (2 - 1) ** 2) / 2])
    wanted = (math.log1p(math.exp(-0.1)) + math.log1p(math.exp(-0.2))) / 2
    assert on_pairs(DPO())(rows).tolist() == pytest.approx([wanted])
    assert on_pairs(DPO())(seen([-1.0, -2.0], [0.5, 0.5])).tolist() == [0.0]
    grown = on_pairs(DPO(growth=1.0, rate=1.0))(seen([-1.0, -2.0], [1.0, 0.0]))
    beta = 0.1 * (2 - math.exp(-1))  # the margin is the difference of the rewards
    assert grown.tolist() == pytest.approx([math.log1p(math.exp(-beta))])


def test_seeds_do_not_depend_on_one_another() -> None:
    def game(seeds: int) -> Game:
        return Game(reward_K=reward_K(70, 10), samples=4, epochs=3, reuse=2, seeds=seeds, contexts=2)

    few, many = (train(LOSSES["reinforce"], game(seeds), own=True, rate=0.1) for seeds in (2, 3))
    assert many.reward_S[:2] == pytest.approx(few.reward_S, rel=1e-9) and many.reward_S[2] != many.reward_S[0]


def test_own_samples_find_a_peak_far_from_the_reference() -> None:
    far = found("best_of_n", "rwr", "{kind: ipo, beta: 0.1}", "reinforce")
    for name, row in far.items():
        assert row["difference"]["mean"] > 0.1, name
        assert row["on_policy"]["rejected"] < 0.0, name
    near = found("best_of_n", "reinforce", peak=20)
    assert all(row["offline"]["mean"] > 0.7 and row["difference"]["mean"] < 0.15 for row in near.values())


def test_the_best_step_size_is_taken() -> None:
    row = found("best_of_n", rates=(1e-6, 0.3))["best_of_n"]
    assert row["on_policy"]["rate"] == 0.3 and np.isfinite(row["on_policy"]["low"])


def test_a_name_that_is_no_loss() -> None:
    with pytest.raises(UserError, match=r"'dpi' is no preferenceloss .did you mean 'dpo'"):
        found("dpi")
