"""Laws of the searches, for every member on arrival, with scripted models in every role."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.search import Found, Search, place_of_best
from posttrain.types import Group, Segment, Task
from tests.builders import ScriptedSampler, assert_facts_are_plain, score
from tests.conformance._members import members
from tests.conformance.test_rollouts import Grader, holds, told

every_member = pytest.mark.parametrize("search", members(Search))

TASK = Task(key="text", prompt="What is 2 + 2?", answer="4")


def look(search: Search, key: str = "a", grader: Grader | None = None) -> tuple[Found, dict[str, ScriptedSampler]]:
    models = {role: ScriptedSampler(role, key, version=i + 1) for i, role in enumerate(sorted(search.roles))}
    return asyncio.run(search.search(TASK, models, (grader or Grader()) if search.uses_rewards else None)), models


def told_so(model: ScriptedSampler, before: np.ndarray, segment: Segment) -> bool:
    """Whether a segment, chosen by the search, has the log-probabilities that the model gave for it there."""
    ids = np.concatenate([before, segment.token_ids])
    logp = model.given.get(ids.tobytes())
    return logp is not None and segment.logp is not None and np.array_equal(logp[len(before) - 1 :], segment.logp)


@every_member
def test_rollouts_are_well_formed(search: Search) -> None:
    found, models = look(search)
    assert len(found.trajectories) == len(found.values) > 0
    assert [t.sample for t in found.trajectories] == list(range(len(found.trajectories)))
    for attempt in found.trajectories:
        assert attempt.task == TASK and attempt.segments[0].actor == "prompt"
        assert_facts_are_plain(attempt)
        for place, segment in enumerate(attempt.segments[1:], start=1):
            model, before = models[segment.actor], np.concatenate([s.token_ids for s in attempt.segments[:place]])
            sampled = any(holds(c, segment) for c in model.completions)
            assert segment.trained and (sampled or told_so(model, before, segment))
    assert found.best is found.trajectories[place_of_best(found.values)]


@every_member
def test_the_reward_is_asked_once_for_each_rollout_or_not_at_all(search: Search) -> None:
    grader = Grader()
    found, _ = look(search, grader=grader)
    assert len(grader.given) == (len(found.trajectories) if search.uses_rewards else 0)
    assert all((t.score is not None) == search.uses_rewards for t in found.trajectories)


@every_member
def test_same_samplers_same_finds(search: Search) -> None:
    def shown(found: Found) -> str:
        ids = [t.token_ids.tolist() for t in found.trajectories]
        return repr((ids, found.values, dict(found.statistics), [(s.text, s.value, s.visits) for s in found.states]))

    assert shown(look(search)[0]) == shown(look(search)[0]) != shown(look(search, "b")[0])


@every_member
def test_states_are_prefixes_of_rollouts(search: Search) -> None:
    found, _ = look(search)
    for state in found.states:
        begun = [t for t in found.trajectories if np.array_equal(t.token_ids[: len(state.token_ids)], state.token_ids)]
        assert begun and state.visits > 0 and np.isfinite(state.value)


@every_member
def test_statistics_are_finite_numbers(search: Search) -> None:
    found, models = look(search)
    assert {"rollouts", "sampled_tokens", "best_after"} <= set(found.statistics)
    assert np.isfinite(list(found.statistics.values())).all()
    assert found.statistics["sampled_tokens"] <= sum(len(c.token_ids) for c in models["policy"].completions)


@every_member
def test_temperature_can_divide(search: Search) -> None:
    assert search.temperature > 0


def test_a_grader_that_fails_is_no_zero() -> None:
    async def failing(group: Group) -> Group:
        failed = replace(score(0.0), value=float("nan"), status="error")
        return replace(group, trajectories=tuple(t.scored(failed) for t in group))

    for member in members(Search):
        search: Search = member.values[0]
        if search.uses_rewards:
            models = {role: ScriptedSampler(role) for role in search.roles}
            found = asyncio.run(search.search(TASK, models, failing))
            assert np.isnan(found.values).all() and not found.states


@every_member
def test_needs_are_exact(search: Search) -> None:
    _, models = look(search)
    assert told(models) == search.needs
