"""The reasoning pattern reward: presence, repetition, questions to itself."""

import pytest

from posttrain.components.rewards.phrases import PHRASES, Phrases, repeated_share
from tests.components.rewards.judging import judge


def test_the_phrases_are_forty_different_ones_in_lower_case() -> None:
    assert len(set(PHRASES)) == len(PHRASES) == 40 and all(phrase == phrase.lower() for phrase in PHRASES)
    assert not [(a, b) for a in PHRASES for b in PHRASES if a != b and a in b], "none gives another for nothing"


def test_presence_counts_not_frequency_and_the_most_is_1() -> None:
    reward = Phrases()
    assert judge(reward, "First, I need to add. First, I need to add. Wait, no.").value == 2 / 20
    listed = [judge(reward, " ".join(PHRASES[:count])).value for count in (19, 20, 40)]
    assert listed == [0.95, 1.0, 1.0]
    assert judge(reward, " ".join(PHRASES[:20])).status == "ok"


def test_the_text_after_the_opening_of_the_thoughts_counts() -> None:
    reward = Phrases(needed=2)
    assert judge(reward, "wait, <think>hold on</think>").value == 0.5
    assert judge(reward, "wait, hold on").value == 1.0
    assert judge(Phrases(needed=2, after=None), "wait, <think>hold on</think>").value == 1.0


def test_questions_to_itself_and_repetition_are_subtracted() -> None:
    """21 words repeated once are 42: 23 sequences of 20 words, of which 2 distinct ones occur twice."""
    words = [f"w{n}" for n in range(21)]
    assert repeated_share([*words, *words], 20) == pytest.approx(2 / 23)
    assert repeated_share(words, 20) == 0.0 and repeated_share(words[:19], 20) == 0.0
    stuffed = " ".join(PHRASES[:20])
    assert judge(Phrases(), f"{stuffed} user: what is 2 + 2?").value == 0.0
    twice = judge(Phrases(), f"{stuffed} {stuffed}").value
    count = len(f"{stuffed} {stuffed}".split())
    assert twice == pytest.approx(1.0 - (count // 2 - 19) / (count - 19))
