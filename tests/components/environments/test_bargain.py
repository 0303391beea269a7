"""A partner with a rule, and a best response to it."""

import itertools

import pytest

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
