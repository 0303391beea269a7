"""Rewards of prefixes that add up, early, alike or late."""

import numpy as np
import pytest

from posttrain.components.annotators.reversal import Reversal
from posttrain.components.tasks.prefixes import KINDS, SPREADS, Prefixes


def test_the_reward_of_a_prefix_is_the_sum_of_its_words() -> None:
    tasks = Prefixes(size=20, segments=4)
    rewards = tasks.rewards()
    for task in tasks.load():
        (pair,) = task.preferences
        for text, sums in zip(task.fields["texts"], task.fields["prefix_rewards"], strict=True):
            own = [rewards[place][KINDS.index(word)] for place, word in enumerate(text.split())]
            assert sums == pytest.approx(np.cumsum(own).tolist())
        gap = task.fields["prefix_rewards"][0][-1] - task.fields["prefix_rewards"][1][-1]
        assert pair.strength == pytest.approx(abs(gap)) and pair.chosen == task.fields["texts"][int(gap < 0)]
        assert task.demonstrations == (pair.chosen,)


def test_rewards_are_decided_early_or_late() -> None:
    table = {name: np.array(Prefixes(reward=name).rewards()) for name in SPREADS}
    flat = table["flat"]
    for name, spreads in SPREADS.items():
        assert table[name] == pytest.approx(flat * np.array(spreads)[:, None])


def test_both_answers_share_words_and_annotators_compare_them() -> None:
    for task in Prefixes(size=20, segments=3, shared=2, annotators=(Reversal(),)).load():
        one, other = (text.split() for text in task.fields["texts"])
        assert one[:2] == other[:2] and one != other
        (pair,) = task.preferences
        assert pair.annotator == "reversal" and pair.fields["gold_gap"] < 0 and pair.rejected == task.demonstrations[0]
