"""A category that is drawn often and does not get better."""

from typing import Any

import numpy as np
import pytest

from posttrain.components.alarms import Readings
from posttrain.components.alarms.still_category import StillCategory
from posttrain.components.curricula import Curriculum
from posttrain.components.diagnostics import _simulated as simulated

RULE = StillCategory(window=8)


def raised(rule: StillCategory, rows: list[dict[str, float]]) -> list[int]:
    """Steps from 1 at which it is raised."""
    state, found = rule.start(), []
    for step, row in enumerate(rows, 1):
        state, message = rule.check(state, Readings(metrics={f"curriculum/{name}": v for name, v in row.items()}))
        if message is not None:
            assert "'coin'" in message and "stands still at 50 %" in message
            found.append(step)
    return found


def rows(share: float, rates: list[float]) -> list[dict[str, float]]:
    rest = (1.0 - share) / 2.0
    return [
        {"share/coin": share, "share/a": rest, "share/b": rest, "solved/coin": rate, "solved/a": 0.0} for rate in rates
    ]


def test_twice_its_share_and_the_same_rate() -> None:
    still = [0.4, 0.6] * 5
    assert raised(RULE, rows(0.7, still)) == [8, 9, 10], "two thirds are twice a third"
    assert raised(RULE, rows(0.6, still)) == [], "drawn less often"
    assert raised(RULE, rows(0.7, np.linspace(0.1, 0.9, 10).tolist())) == [], "it gets better"
    assert raised(RULE, rows(0.7, still)[:7]) == [], "too few steps"


def test_steps_without_categories_are_not_counted() -> None:
    state = RULE.start()
    for metrics in ({}, {"curriculum/share/only": 1.0}, {"curriculum/entropy": 0.1}):
        assert RULE.check(state, Readings(metrics=metrics)) == (state, None)
    assert raised(RULE, [{}, *rows(0.7, [0.4, 0.6] * 4)]) == [9]
    unseen = [{"share/coin": 0.9, "share/a": 0.1}] * 9
    assert raised(RULE, unseen) == [], "no rate is known"


@pytest.mark.parametrize("seed", range(3))
def test_a_coin_flip_among_six_domains_is_found_by_step_fifty(seed: int) -> None:
    pool = simulated.domains(512, np.random.default_rng([seed, 1]))
    learner = simulated.Learner(pool=pool, n=8, rate=0.25, divide="all", rng=np.random.default_rng([seed, 2]))
    curriculum, rule = Curriculum.find("ucb")(), StillCategory()
    state: Any = curriculum.start()
    seen, named = rule.start(), set[str]()
    for step in range(50):
        state, picks = curriculum.select(state, pool.tasks, 16, seed=seed, step=step)
        places = learner.places([pick.task for pick in picks])
        groups, share_B = learner.sample(places, 8)
        learner.learn(places, share_B)
        state = curriculum.observe(state, groups)
        report = {f"curriculum/{name}": float(value) for name, value in curriculum.report(state).items()}
        seen, message = rule.check(seen, Readings(metrics=report))
        named |= {message.split("'")[1]} if message else set()
    assert named == {"coin flip"}
