"""Each known cheat has exactly the reward that docs/rewards.md states, and right texts have more, exceptions named."""

import pytest

from benchmarks._reward_cheats import Cheat, cheats
from tests.components.rewards.judging import judge
from tests.components.rewards.programs import tier_for

ALL = list(cheats())
ROWS = {17, 39, 93, 96, 100, 124, 143, 154, 162, 170, 175, 188, 205, 216, 229, 244, 245, 252, 256, 286}
"""Rows whose cheats are texts; those of 73, 91, 204, 208, 287 and 313 are lists, memories, episodes or models."""
REWARDED = {
    "the same, by tests alone",
    "terminate, where that is right",
    "the 40 phrases, alone",
    "three right words, effective order",
    "'B or A', by a prefix",
    "always 'proved', where it is",
    "an echo of the prompt, no gates",
    "a changed meaning",
}
"""Cheats that are rewarded as right texts are: what a setting, or another reward, is for."""


def _rewarded(cheat: Cheat) -> None:
    if cheat.row == 252:
        pytest.importorskip("sacrebleu")
    cheat.reward.prepare()
    score = judge(cheat.reward, cheat.text, cheat.task)
    assert score.value == pytest.approx(cheat.pay, abs=5e-5) and score.status in ("ok", "wrong")


@pytest.mark.parametrize("cheat", [own for own in ALL if not own.runs], ids=lambda own: f"{own.row} {own.name}")
def test_texts(cheat: Cheat) -> None:
    _rewarded(cheat)


@pytest.mark.slow
@pytest.mark.parametrize("cheat", [own for own in ALL if own.runs], ids=lambda own: f"{own.row} {own.name}")
def test_programs(cheat: Cheat) -> None:
    tier_for()
    _rewarded(cheat)


def test_what_is_rewarded_as_a_right_text_is_named() -> None:
    assert {own.row for own in ALL} == ROWS
    honest = {own.name for own in ALL if own.row == 229}
    assert {own.name for own in ALL if own.accepted} - honest == REWARDED
