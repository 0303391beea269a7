import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from pydantic import ValidationError

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.rollouts.two_stage import TwoStage
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Score
from tests.builders import ScriptedSampler, batch, info_of, score, task

EQUAL = TwoStage()
HARD = TwoStage(schedule="hard", n_max=64)


class Grades:
    """A scorer that gives these values in order, and keeps the sizes of what it scored; None is a failure."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self.values = iter(values)
        self.sizes: list[int] = []

    async def __call__(self, group: Group) -> Group:
        self.sizes.append(len(group))
        given = [next(self.values) for _ in group]
        scores = [Score(value=math.nan, status="error") if value is None else score(value) for value in given]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))


def attempted(rollout: TwoStage, values: Sequence[float | None]) -> tuple[Group, ScriptedSampler, list[int]]:
    policy, scorer = ScriptedSampler(version=7), Grades(values)
    [group] = asyncio.run(rollout.collect_scored(task("sum"), {"policy": policy}, scorer))
    return group, policy, scorer.sizes


@pytest.mark.parametrize(
    ("right", "equal", "hard"),
    [
        # S = 2 u (1 - u) and N S, with u = 1/16 where nobody was right; the target is 4, or 8 (1 - u).
        (0, 24, 56),  # (4 - 15/16) / (15/128) = 26.1, of which the cap leaves 24; (7.5 - 15/16) / (15/128) = 56
        (1, 11, 24),  # (4 - 1.75) / (7/32) = 10.3; (7 - 1.75) / (7/32) = 24
        (2, 3, 8),  # (4 - 3) / (3/8) = 2.7; (6 - 3) / (3/8) = 8
        (3, 1, 3),  # (4 - 3.75) / (15/32) = 0.5; (5 - 3.75) / (15/32) = 2.7
        (4, 0, 0),
        (7, 0, 0),
        (8, 0, 0),
    ],
)
def test_rollouts_of_the_second_stage_by_hand(right: int, equal: int, hard: int) -> None:
    assert EQUAL.more(right / 8) == equal
    assert HARD.more(right / 8) == hard


def test_without_the_cap() -> None:
    """27 are wanted for a task that nobody solved, where 24 fit; the other schedule's 56 fit exactly."""
    assert replace(EQUAL, n_max=1000).more(0.0) == 27
    assert replace(HARD, n_max=1000).more(0.0) == 56
    assert replace(HARD, n_max=20).more(0.0) == 12


def test_with_division_by_the_standard_deviation() -> None:
    """u = 1/5: S = 2 * 0.4 = 0.8 and N S = 4 of 5: ceil(1 / 0.8) = 2; hard 8: 4 / 0.8 = 5 to the dot. u = 1/10 and
    N = 10: S = 0.6, N S = 6: ceil(4 / 0.6) = 7; hard 18: 12 / 0.6 = 20."""
    five = TwoStage(n=5, n_max=1000, divide_by_std=True)
    ten = TwoStage(n=10, n_max=1000, divide_by_std=True)
    assert (five.more(0.2), replace(five, schedule="hard").more(0.2)) == (2, 5)
    assert (ten.more(0.1), replace(ten, schedule="hard").more(0.1)) == (7, 20)


@pytest.mark.parametrize("n", [3, 5, 7, 8, 10, 16, 24])
def test_the_target_is_met_with_no_rollout_too_many(n: int) -> None:
    """In exact fractions: with as many rollouts, the sizes of the advantages expected at u come to the target."""
    for right in range(1, n):
        u = Fraction(right, n)
        each = 2 * u * (1 - u)
        for schedule, target in (("equal", Fraction(n, 2)), ("hard", n * (1 - u))):
            more = TwoStage(n=n, schedule=schedule, n_max=10_000).more(right / n)  # type: ignore[arg-type]
            if u >= Fraction(1, 2):
                assert more == 0
            else:
                assert (n + more) * each >= target > (n + more - 1) * each


@pytest.mark.parametrize("right", [1, 2, 3])
def test_sizes_of_advantages_are_those_of_the_sheet(right: int) -> None:
    """A group of N + more rollouts with the first stage's share of right ones: |r - mean| adds up to about N / 2."""
    total = 8 * (8 + EQUAL.more(right / 8))  # eight times as many, so that the share is a whole number
    rewards = [1.0] * (total * right // 8) + [0.0] * (total - total * right // 8)
    _, credit = GroupMean(scale="none")({}, batch([rewards], length=1))
    size = sum(abs(float(a[0])) for a in credit.advantages) / 8
    each = 2 * right / 8 * (1 - right / 8)
    assert 4.0 <= size < 4.0 + each


@pytest.mark.parametrize("schedule", ["equal", "hard"])
def test_more_the_harder_and_never_beyond_the_cap(schedule: str) -> None:
    rollout = TwoStage(n=16, schedule=schedule, n_max=40)  # type: ignore[arg-type]
    given = [rollout.more(right / 16) for right in range(17)]
    assert given == sorted(given, reverse=True)
    assert given[0] == 24 and given[8:] == [0] * 9


def test_all_rollouts_are_one_group_scored_stage_by_stage() -> None:
    values = [0, 1, 0, 0, 0, 0, 0, 0, *[0, 1] * 5, 1]
    group, policy, sizes = attempted(EQUAL, values)
    assert sizes == [8, 11]
    assert group.rewards.tolist() == values
    assert [t.sample for t in group] == list(range(19))
    assert all(info_of(t) == {"first_stage": 0.125, "more_rollouts": 11} for t in group)
    prompt = group.trajectories[0].segments[0]
    for attempt, completion in zip(group, policy.completions, strict=True):
        assert attempt.segments[0] is prompt and attempt.segments[1].token_ids is completion.token_ids
        assert (attempt.segments[1].trained, attempt.segments[1].version) == (True, 7)


def test_an_easy_task_is_sampled_once() -> None:
    group, policy, sizes = attempted(EQUAL, [1, 0, 1, 0, 1, 0, 1, 0])
    assert sizes == [8] and len(policy.completions) == 8
    assert {info_of(t)["more_rollouts"] for t in group} == {0}


def test_parts_of_a_point_count_as_they_are() -> None:
    """Eight scores of 1/4: those of two right ones."""
    group, _, _ = attempted(EQUAL, [0.25] * 11)
    assert len(group) == 11


def test_failed_scores_have_no_part_in_the_mean() -> None:
    group, _, sizes = attempted(EQUAL, [None] * 4 + [1, 0, 0, 0] + [0, None, 1])
    assert sizes == [8, 3], "1 of 4 is 2 of 8"
    assert [t.score and t.score.status for t in group][-2:] == ["error", "ok"]
    group, policy, sizes = attempted(EQUAL, [None] * 8)
    assert sizes == [8] and len(policy.completions) == 8, "nothing is known, so nothing more is sampled"


@pytest.mark.parametrize(("values", "told"), [([-1.0] + [1.0] * 7, "-1"), ([0.0] * 7 + [3.0], "3")])
def test_rewards_that_are_no_shares_are_a_mistake(values: list[float], told: str) -> None:
    with pytest.raises(UserError, match=f"task sum: a reward of {told}, .* give rewards from 0 to 1"):
        attempted(EQUAL, values)


def test_the_cap_holds_the_first_stage() -> None:
    with pytest.raises(ValidationError, match="n_max counts the first stage too: 4 is less than n, 8"):
        TwoStage(n_max=4)
    assert TwoStage(n=8, n_max=8).more(0.0) == 0


def test_sampling_reaches_the_sampler_and_another_role_can_write() -> None:
    rollout = TwoStage(n=4, n_max=6, sampling=Sampling(max_tokens=2, temperature=0.7), role="guide")
    guide = ScriptedSampler()
    [group] = asyncio.run(rollout.collect_scored(task(), {"guide": guide}, Grades([0] * 6)))
    assert len(group) == 6 and max(attempt.num_trained for attempt in group) == 2
    assert rollout.temperature == 0.7
    assert TwoStage(sampling=Sampling(temperature=0)).temperature == 1.0


def test_the_old_name_of_its_setting_is_refused_with_the_new_one() -> None:
    with pytest.raises(ValidationError, match=r"TwoStage\.deviation was renamed: write divide_by_std"):
        TwoStage(deviation=True)  # type: ignore[call-arg]
