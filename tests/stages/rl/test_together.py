"""Tasks that a reward scores together: drawn, sampled and scored as one, under every schedule."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from posttrain.component import frozen
from posttrain.component.user_code import allowing
from posttrain.components.rewards import Reward, RewardContext, joined, scored
from posttrain.components.rewards.all_of import AllOf
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.ranked import Ranked
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.adaptive import Adaptive
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.files import Files
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.lagged import Lagged
from posttrain.components.timetables.streaming import Streaming
from posttrain.datasets.holdout import holdout
from posttrain.datasets.together import lists, lists_in
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.evaluation.completions import score_completions
from posttrain.policies.folder import new_folder
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import replay
from posttrain.stages.rl.choosing import Choosing
from posttrain.stages.rl.together import Joined, Lists, lists_of, pool_of
from posttrain.types import Group, Score, Task
from tests.builders import trajectory
from tests.conformance.test_methods import run
from tests.stages.resuming import cut_off_and_resumed
from tests.stages.rl.test_ahead import recipe_with

MINE = '''
from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.types import Score


@frozen
class Mine(Reward):
    """A rollout by its own characters and those of all others of its list."""

    together: str | None = "query"

    async def score(self, group, context):
        keys = {t.task.key for t in group}
        assert len({t.task.fields["query"] for t in group}) == 1 and len(keys) == 3, keys
        total = sum(sum(map(ord, t.completion)) for t in group)
        return [Score(value=(sum(map(ord, t.completion)) * 5 + total) % 7 / 6, status="ok") for t in group]
'''
ROWS = [
    {"key": f"{query}{number}", "prompt": f"{query} {number}:", "answer": "4", "query": query}
    for number in range(3)
    for query in "abcdefgh"
]
"""24 rows of 8 queries, those of a query not one after another."""
TASKS = [Task(key=row["key"], prompt=row["prompt"], fields={"query": row["query"]}) for row in ROWS]


@frozen
class Total(Reward):
    """The number of rollouts that it was shown at once."""

    together: str | None = "query"

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        return [Score(value=float(len(group)), status="ok", answer=t.task.key) for t in group]


class Writes(Independent):
    """Two rollouts for each task, without a model."""

    async def collect(self, task: Task, samplers: Any) -> list[Group]:
        return [Group(key=task.key, trajectories=tuple(trajectory(of=task, sample=n) for n in range(2)))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)


@pytest.fixture(autouse=True)
def trusted() -> Iterator[None]:
    """The reward of the runs below is a file."""
    with allowing(trust=True):
        yield


def lists_by_query(tasks: Sequence[Task] = TASKS) -> Lists:
    found = lists_of(Total(), tasks, Writes(), refilled=False)
    assert found is not None
    return found


def test_the_lists_are_in_the_order_of_their_first_tasks() -> None:
    found = lists_by_query()
    assert [task.key for task in found.heads] == [f"{query}0" for query in "abcdefgh"]
    assert [task.key for task in found.members["b0"]] == ["b0", "b1", "b2"]
    assert pool_of(None, TASKS) is TASKS and pool_of(found, TASKS) == found.heads
    assert lists_of(Match(), TASKS, Writes(), refilled=False) is None
    assert "values: 8, with 3 of 24 tasks each; a step draws 2 of them" in found.note(2)


def test_the_reward_has_all_rollouts_of_a_value_and_each_task_its_own_group() -> None:
    class Named(SimpleNamespace):
        def bind(self, *key: Any) -> "Named":
            return Named()

    asked: list[list[str]] = []

    async def scorer(group: Group) -> Group:
        asked.append([t.task.key for t in group])
        return await scored(group, Total(), RewardContext())

    whole = Joined(of=Writes(), lists=lists_by_query())
    groups = asyncio.run(whole.collect_scored(TASKS[1], {"policy": Named()}, scorer))  # type: ignore[dict-item]
    assert asked == [["b0", "b0", "b1", "b1", "b2", "b2"]], "one call"
    assert [group.key for group in groups] == ["b0", "b1", "b2"] and not any(group.together for group in groups)
    assert [[t.score.value for t in group if t.score] for group in groups] == [[6.0, 6.0]] * 3
    assert [[t.score.answer for t in group if t.score] for group in groups] == [[k] * 2 for k in ("b0", "b1", "b2")]


def test_the_curriculum_observes_one_task_for_each_value() -> None:
    rollouts = [asyncio.run(Writes().collect(task, {}))[0] for task in TASKS if task.fields["query"] in "ab"]
    seen = lists_by_query().seen(rollouts)
    assert [(group.key, len(group)) for group in seen] == [("a0", 6), ("b0", 6)]
    assert {t.task.key for group in seen for t in group} == {"a0", "b0"}
    plain: Any = Choosing(curriculum=None, rollout=None, reward=None, reducer=None, learning=None)  # type: ignore
    assert plain.seen(rollouts) is rollouts


def test_a_task_without_the_field_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UserError, match=r"task x has no field 'query', by which .*; give each row a column 'query'"):
        lists_by_query([*TASKS, Task(key="x", prompt="x", fields={"qery": 1})])
    with pytest.raises(UserError, match="did you mean 'qery'"):
        lists_by_query([Task(key="x", prompt="x", fields={"qery": 1})])
    by_domain = lists([Task(key="x", prompt="x", domain="d"), Task(key="y", prompt="y", domain="d")], "domain", "it")
    assert [[task.key for task in own] for own in by_domain] == [["x", "y"]]
    mixed = [Task(key=key, prompt=key, fields={"q": value}) for key, value in (("x", 1), ("y", "1"), ("z", 1))]
    assert lists_in(mixed, "q") == [[0, 2], [1]], "1 is not the text 1"


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (Gated(reward=Total(), gate={"form": Match()}), "would not see those that fail a gate"),
        (Routed(field="set", parts={"x": Total()}), "which may have different parts; set reward.field=query"),
        (Sum(parts={"whole": Total(), "own": Ranked(of=Match())}), "and 'ranked' those of a single task"),
        (AllOf(parts={"one": Total(), "two": Total(together="other")}), "by the fields 'other', 'query'"),
    ],
)
def test_parts_that_would_miss_rollouts_are_refused(reward: Reward, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _ = reward.together


def test_parts_that_score_each_rollout_go_with_it() -> None:
    assert Sum(parts={"whole": Total(), "own": Match()}).together == "query"
    assert Gated(reward=Match(), gate={"whole": Total()}).together == "query"
    assert Routed(field="query", parts={"a": Total()}).together == "query"
    assert Match().together is None


def test_settings_that_need_scores_of_single_tasks_are_refused() -> None:
    with pytest.raises(UserError, match=r"the rollout 'adaptive' needs scores while it samples"):
        lists_of(Total(), TASKS, Adaptive(), refilled=False)
    with pytest.raises(UserError, match="refill counts the groups of single tasks"):
        lists_of(Total(), TASKS, Writes(), refilled=True)


def test_a_single_task_is_not_scored_by_itself() -> None:
    """Such as in a selection, which has no list."""
    one = asyncio.run(Writes().collect(TASKS[0], {}))[0]
    with pytest.raises(UserError, match="here each task is scored by itself"):
        asyncio.run(scored(one, Total(), RewardContext()))
    assert [t.score.value for t in asyncio.run(scored(joined([one], "a"), Total(), RewardContext())) if t.score] == [
        2,
        2,
    ]


def test_completions_of_a_file_are_scored_by_their_lists() -> None:
    tasks = [replace(task, demonstrations=("x", "y")[: 1 + (task.key == "a1")]) for task in TASKS[:10]]
    found = {one.task.key: one.score.value for one in score_completions(Total(), tasks)}
    assert found == {"a0": 3.0, "a1": 3.0, "b0": 2.0, "b1": 2.0} | dict.fromkeys([f"{q}0" for q in "cdefgh"], 1.0)


def test_the_tasks_of_a_value_are_held_out_together() -> None:
    train, held_out = holdout(TASKS, 3, 0, "query")
    values = [{task.fields["query"] for task in side} for side in (train, held_out)]
    assert len(held_out) == 9 and len(values[1]) == 3 and not values[0] & values[1]
    assert len({task.fields["query"] for task in holdout(TASKS, 3, 0)[1]}) == 3 == len(holdout(TASKS, 3, 0)[1])


def made(tiny: Path, folder: Path, schedule: Any, steps: int = 3) -> Recipe:
    """GRPO over a file with a reward of lists, and rollouts of different lengths."""
    folder.mkdir(exist_ok=True)
    (folder / "whole.py").write_text(MINE)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    recipe = recipe_with(schedule, tiny, folder, steps)
    reward: Reward = TypeAdapter(Reward).validate_python({"kind": f"{folder}/whole.py"})
    stage: Any = recipe.stages["rl"]
    rollout = replace(stage.rollout, n=2, sampling=Sampling(max_tokens=24, stop=tuple("aeiouAEIOU13579")))
    stage = replace(stage, reward=reward, rollout=rollout, prompts=2, filters={})
    evaluation = replace(recipe.evaluation, holdout=2, verifier=None)
    tasks = Files(path=str(folder / "rows.jsonl"))
    return replace(recipe, tasks=tasks, stages={"rl": stage}, evaluation=evaluation)


def same(one: Any, other: Any) -> bool:
    weights = other["policy"].state_dict()
    return all(torch.equal(tensor, weights[name]) for name, tensor in one["policy"].state_dict().items())


def test_a_step_draws_values_with_all_their_tasks(tiny: Path, tmp_path: Path) -> None:
    """Two values of three tasks with two rollouts; advantages are those of each task's rollouts."""
    models, store = run(made(tiny, tmp_path / "of", InTurn(), 2), tmp_path / "run")
    assert models
    for step in (1, 2):
        rows = store.rollouts(step)
        by_task: dict[str, list[float]] = {}
        for row in rows:
            by_task.setdefault(row["task_key"], []).append(row["reward"])
        assert len(rows) == 12 and {len(own) for own in by_task.values()} == {2}
        queries = sorted({key[0] for key in by_task})
        assert len(queries) == 2 and sorted(by_task) == sorted(f"{q}{n}" for q in queries for n in range(3))
    events = (store.folder / "events.jsonl").read_text()
    assert "scored together: the rollouts of all tasks with the same 'query'" in events


@pytest.mark.slow
def test_streaming_without_a_quota_gives_the_bits_of_step_by_step(tiny: Path, tmp_path: Path) -> None:
    found = []
    for name, schedule in (("turn", InTurn()), ("stream", Streaming(eta=0, piece=64, learning=0))):
        found.append(run(made(tiny, tmp_path / "of", schedule, 2), tmp_path / name))
    assert same(found[0][0], found[1][0])
    for step in (1, 2):
        assert found[0][1].rollouts(step) == found[1][1].rollouts(step)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [Lagged(steps=2), Streaming(eta=2, piece=2, learning=1)], ids=["lagged", "stream"])
def test_a_run_that_is_cut_off_resumes_to_the_bit(schedule: Any, tiny: Path, tmp_path: Path) -> None:
    recipe = made(tiny, tmp_path / "of", schedule, 5)
    models, one = run(recipe, tmp_path / "whole")
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert again.metrics() == one.metrics()
    for step in one.rollout_steps():
        assert again.rollouts(step) == one.rollouts(step)
    assert same(models, resumed)


@pytest.mark.slow
def test_the_journal_of_a_stream_gives_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    recipe = made(tiny, tmp_path / "of", Streaming(eta=2, piece=2, learning=1), 4)
    folder, _ = start(recipe, tmp_path / "whole", LiveView(lines=True))
    again, _ = replay(folder, tmp_path / "again", LiveView(lines=True))
    [one] = (folder / "model").glob("*.safetensors")
    [other] = (again / "model").glob("*.safetensors")
    assert one.read_bytes() == other.read_bytes()
