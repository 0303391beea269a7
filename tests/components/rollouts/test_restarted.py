"""ReST-GRPO: when prefixes are drawn, which ones, and what is given."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.restarted import Restarted, line_ends
from posttrain.engines import Sampling
from posttrain.types import Group, Segment
from tests.components.search.lines import TASK, Lines, Scorer

THREE = "a\nb\nc"
SCRIPT = {"P:": ["z", THREE, THREE, "y"], "P:a\n": ["b\nc", "q"], "P:a\nb\n": ["c"], "P:a\nb\nc": [""]}
REWARDS = {THREE: 1.0, "z": 0.0, "y": 0.0, "a\nq": 0.0}


class Drawing(Lines):
    """Gives the draws that it was given."""

    def __init__(self, *draws: float) -> None:
        super().__init__(SCRIPT)
        self.told = list(draws)

    def uniform(self) -> float:
        return self.told.pop(0)


def collect(rollout: Restarted, lines: Lines, rewards: dict[str, float] | None = None) -> list[Group]:
    return asyncio.run(rollout.collect_scored(TASK, {"policy": lines}, Scorer(rewards or REWARDS)))


def given(group: Group) -> list[str]:
    return [t.segments[1].text for t in group]


def test_half_of_the_lines_rounded_up_are_drawn() -> None:
    # weights 1, .95, .9025 of 2.8525: bounds .3506, .6836
    plain, *more = collect(Restarted(n=4), Drawing(0.35, 0.36))
    assert [t.completion for t in plain] == ["z", THREE, THREE, "y"]
    assert [given(group) for group in more] == [["a\n"] * 4, ["a\nb\n"] * 4]
    assert more[0].rewards.tolist() == [1.0, 0.0, 1.0, 0.0], "the reward is of beginning and continuation"
    assert [t.completion for t in more[0]] == [THREE, "a\nq", THREE, "a\nq"]


def test_the_whole_of_it_may_be_given_and_a_prefix_may_be_drawn_twice() -> None:
    _, *more = collect(Restarted(n=4), Drawing(0.99, 0.69))
    assert [given(group)[0] for group in more] == [THREE, THREE]
    assert all(t.completion_ids.tolist() == [*THREE.encode(), 0] for group in more for t in group)


def test_the_given_part_is_not_learned_and_is_made_of_the_sampled_ids() -> None:
    plain, group, _ = collect(Restarted(n=4), Drawing(0.0, 0.0))
    attempt = group.trajectories[0]
    prompt, part, written = attempt.segments
    assert (part.actor, part.trained, part.logp) == ("demonstration", False, None)
    assert part.token_ids.base is plain.trajectories[1].segments[1].token_ids
    assert attempt.trained_positions.tolist() == list(range(len(prompt) + len(part), len(attempt.token_ids)))
    assert written.trained and attempt.demonstrated


@pytest.mark.parametrize(
    ("changes", "rewards"),
    [
        ({}, {THREE: 0.5, "z": 0.5, "y": 0.5}),  # no spread
        ({}, {THREE: 0.89, "z": 0.0, "y": 0.0}),  # not good enough
        ({"min_std": 0.51}, REWARDS),  # the standard deviation of 0, 1, 1, 0 is 0.5
        ({"accept": 1.1}, REWARDS),
        ({"share": 0.0}, REWARDS),
        ({"sampling": Sampling(max_tokens=2)}, {"z": 0.0, "a\n": 1.0, "y": 0.0}),  # it leaves no room
    ],
)
def test_when_nothing_is_gone_on_from(changes: dict[str, Any], rewards: dict[str, float]) -> None:
    lines = Drawing(0.0, 0.0)
    assert len(collect(replace(Restarted(n=4), **changes), lines, rewards)) == 1


def test_the_standard_deviation_is_that_of_the_population() -> None:
    """Of 0.9 and 1.0 twice each it is exactly 0.05, where that of a sample would be 0.0577."""
    rewards = {**REWARDS, THREE: 1.0, "z": 0.9, "y": 0.9}
    assert len(collect(replace(Restarted(n=4), min_std=0.0499), Drawing(0.0, 0.0), rewards)) == 3
    assert len(collect(replace(Restarted(n=4), min_std=0.0501), Drawing(0.0, 0.0), rewards)) == 1


def test_failed_scores_are_no_rollouts() -> None:
    rewards = {THREE: 1.0, "z": 0.0, "a\nq": 0.0}
    assert len(collect(Restarted(n=4), Drawing(0.0, 0.0), rewards)) == 3
    assert len(collect(Restarted(n=4), Drawing(0.0, 0.0), {THREE: 1.0})) == 1


def test_short_prefixes_are_likelier() -> None:
    rollout, lines = Restarted(n=4, decay=0.5), Drawing(0.0, 0.0)
    plain, *_ = collect(rollout, lines)
    lines.told = np.random.default_rng(0).random(800).tolist()
    seen = Counter(part.text for _ in range(400) for part in rollout._prefixes(plain, lines))
    # 4/7, 2/7 and 1/7 of 800
    assert [seen["a\n"], seen["a\nb\n"], seen[THREE]] == [
        pytest.approx(expected, abs=45) for expected in (457, 229, 114)
    ]


@pytest.mark.parametrize(("text", "ends"), [("a\nb\n", [2, 4]), ("abc", [3]), ("\na", [1, 2]), ("", [1])])
def test_where_lines_end(text: str, ends: list[int]) -> None:
    segment = Segment(actor="policy", token_ids=np.array([*text.encode(), 0]), text=text)
    assert line_ends(segment, "\n", Lines({})) == ends


def test_the_limit_is_of_the_whole_rollout() -> None:
    rollout = Restarted(n=4, sampling=Sampling(max_tokens=7))
    lines = Drawing(0.0, 0.0)
    lines.script = {**SCRIPT, "P:a\n": ["x" * 20]}
    _, group, _ = collect(rollout, lines, {**REWARDS, "a\nxxxxx": 0.0})
    assert {len(t.completion_ids) for t in group} == {7}


def test_the_old_name_of_its_setting_is_refused_with_the_new_one() -> None:
    with pytest.raises(ValidationError, match=r"Restarted\.deviation was renamed: write min_std"):
        Restarted(deviation=0.1)  # type: ignore[call-arg]
