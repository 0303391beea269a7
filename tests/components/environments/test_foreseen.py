"""Refusals in front of an environment, by hand."""

import pytest

from posttrain.components.environments.foreseen import Foreseen
from posttrain.components.environments.workshop import Workshop
from tests.components.environments.playing import play
from tests.components.environments.test_workshop import DARK

RULES = ("wood if door:shut", "cut if not wood:yes")


def foreseen(**settings: object) -> Foreseen:
    return Foreseen(**{"environment": Workshop(), "rules": RULES, **settings})  # type: ignore[arg-type]


def test_a_forbidden_action_does_not_reach_the_environment() -> None:
    first, outcomes, _, measures = play(foreseen(), DARK, ["wood", "door", "wood", "saw"])
    assert outcomes[0].observation.text == f"It would fail: wood if door:shut.\n{first.text}"
    assert [o.observation.text.startswith("fails") for o in outcomes] == [False, False, False, True]
    assert measures == {"actions": 3.0, "failed": 1.0, "regret": 1.0, "refused": 1.0, "carried_out": 3.0}


def test_after_the_last_refusal_the_proposal_is_carried_out_as_it_is() -> None:
    _, outcomes, _, measures = play(foreseen(refusals=2), DARK, ["wood", "cut", "wood", "wood"])
    assert [o.observation.text.startswith("fails") for o in outcomes] == [False, False, True, False]
    assert measures["failed"] == 1.0 and measures["refused"] == 3.0
    assert play(foreseen(refusals=0), DARK, ["wood"])[3]["failed"] == 1.0


def test_an_action_without_an_effect_again_and_again_ends_the_episode() -> None:
    _, outcomes, verdict, _ = play(foreseen(rules=(), repeats=3), DARK, ["cut"] * 9)
    assert len(outcomes) == 3 and outcomes[-1].truncated and verdict is not None and not verdict.solved
    assert len(play(foreseen(rules=(), repeats=3), DARK, ["cut", "cut", "door", "cut", "cut", "glue"])[1]) == 6
    assert len(play(foreseen(actions=2), DARK, ["wood", "door", "light", "saw"])[1]) == 3, "a refusal is no action"


def test_a_rule_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="a rule is written"):
        foreseen(rules=("never cut",))
