"""A partner with a rule, and a best response to it."""

import asyncio
import itertools
from random import Random
from typing import Any

import pytest

from posttrain.components.environments import Outcome
from posttrain.components.environments.bargain import ACTIONS, DEAL, PARTNERS, Bargain, State, best_response, played
from posttrain.types import Task
from tests.components.environments.playing import play

OF = {
    play(Bargain(), Task(key=str(i), prompt=""), [])[0].text.split()[0]: Task(key=str(i), prompt="") for i in range(30)
}
"""A task of each partner."""


def value(partner: str, *actions: str) -> float:
    _, _, verdict, measures = play(Bargain(), OF[partner], actions)
    assert verdict is not None and measures["regret"] >= 0.0
    return verdict.value


def test_each_partner_keeps_to_its_rule() -> None:
    assert set(OF) == set(PARTNERS)
    assert value("firm", "6") == pytest.approx(0.4) and value("firm", "5", DEAL) == pytest.approx(0.9 * 0.3)
    assert value("hurried", "6") == 0.0 and value("hurried", "6", "6") == pytest.approx(0.9 * 0.4)
    assert value("mirror", "0", "4") == pytest.approx(0.9 * 0.6), "an offer that rises by 4 is answered by as much"
    assert value("mirror", "0", "0", DEAL) == pytest.approx(0.81 * 0.2)
    assert value("firm", *["0"] * 5) == 0.0, "no deal"
    assert value("firm", "11", "6") == pytest.approx(0.9 * 0.4), "what is no action costs a round"


def test_the_search_finds_what_trying_all_plans_finds() -> None:
    for partner in PARTNERS:
        best = 0.0
        for plan in itertools.product(ACTIONS, repeat=3):
            state = State(partner)
            for action in plan:
                kept, after = played(state, action)
                if kept is not None:
                    best = max(best, 0.9**state.turn * kept / 10)
                    break
                state = after
        assert best_response(State(partner), 3, 0.9)[0] == pytest.approx(best)


def between(*turns: str, **settings: float) -> tuple[list[Outcome], Any]:
    """The outcomes of turns of both, one after the other."""
    own = Bargain(**settings).with_other("bob")  # type: ignore[arg-type]
    assert own.roles == {"bob"} and Bargain().roles == frozenset()
    episode = own.instance(Task(key="a", prompt="Go."), Random(0).random)
    episode.begin()

    async def play() -> list[Outcome]:
        return [await (episode.reply if i % 2 else episode.step)(turn) for i, turn in enumerate(turns)]

    return asyncio.run(play()), episode


def test_a_model_as_the_partner_gets_what_is_left() -> None:
    """An offer of 4 in the second round, times .9: .54 and .36; a demand of 7 leaves .3 and .7 in the first."""
    outcomes, episode = between("2", "7", "4", "deal")
    asked = outcomes[0].request
    assert asked is not None and asked.role == "bob" and "offers 2" in asked.prompt[0]["content"]
    assert "demands 7" in outcomes[1].observation.text and [o.done for o in outcomes] == [False, False, False, True]
    assert episode.verdict().value == pytest.approx(0.54) and episode.verdict_of("bob").value == pytest.approx(0.36)
    assert episode.verdict().solved and episode.verdict_of("policy") is None
    _, episode = between("2", "7", "deal", discount=0.5)
    assert (episode.verdict().value, episode.verdict_of("bob").value) == pytest.approx((0.15, 0.35))


def test_two_models_without_a_deal_have_nothing_and_other_turns_repeat_the_last_one() -> None:
    outcomes, episode = between("3", "what", "", "6", horizon=2)
    assert outcomes[2].request is not None and "offers 3" in outcomes[2].request.prompt[0]["content"]
    assert "demands 10" in outcomes[1].observation.text and outcomes[3].done and not outcomes[2].valid
    assert episode.verdict() == episode.verdict_of("bob") and episode.verdict().value == 0.0
    assert not episode.verdict().solved and episode.measures() == {"failed": 1.0}
