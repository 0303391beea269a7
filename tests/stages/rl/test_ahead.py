"""Sampling ahead: the order of what is sampled and learned, which weights sample, resume, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.rewards.function import Function
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.lagged import Lagged
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.policies.folder import new_folder
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.stages.rl.ahead import AHEAD, Ahead, Collected
from posttrain.types import Trajectory
from tests.builders import group, task
from tests.conformance.test_methods import made_small, run
from tests.stages.resuming import cut_off_and_resumed

SCORE = """
def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6
"""


def events(
    ahead: int, steps: int, memory: dict[str, Any] | None = None, start: int = 0, *, overlaps: bool = False
) -> list[str]:
    """What is done, in order: c3 chooses and begins to sample step 3, w3 waits for it, l3 learns from it."""
    found: list[str] = []

    def begin(number: int) -> Callable[[], Collected]:
        found.append(f"c{number}")

        def wait() -> Collected:
            found.append(f"w{number}")
            return Collected(sampled=number)

        return wait

    memory = {} if memory is None else memory
    queue = Ahead(memory, [], ahead, steps, begin, lambda: overlaps)
    for step in range(start, steps):
        assert queue.take(step).sampled == step
        found.append(f"l{step}")
        queue.settle()
    queue.store()
    return found


def test_in_turn_a_step_is_sampled_when_it_is_learned_from() -> None:
    assert events(0, 3) == ["c0", "w0", "l0", "c1", "w1", "l1", "c2", "w2", "l2"]


def test_with_a_lag_of_two_the_third_step_is_chosen_before_the_first_is_learned_from() -> None:
    """And is waited for after it, so that both go on at the same time."""
    assert events(2, 5) == ["c0", "w0", "c1", "w1", "c2", "l0", "w2", "c3", "l1", "w3", "c4", "l2", "w4", "l3", "l4"]


def test_overlapped_a_step_begins_before_the_one_before_is_waited_for() -> None:
    """With k = 2 three are sampled at a time: 2, 3 and 4 while step 2 is waited for."""
    found = events(2, 6, overlaps=True)
    begun = ["c0", "w0", "c1", "w1", "c2", "l0", "c3", "l1", "c4", "w2", "l2", "c5", "w3", "l3"]
    assert found == [*begun, "w4", "l4", "w5", "l5"]


def test_a_checkpoint_waits_for_what_is_being_sampled() -> None:
    memory: dict[str, Any] = {}
    queue = Ahead(memory, [], 1, 9, lambda number: lambda: Collected(sampled=number), lambda: True)
    for step in range(3):
        queue.take(step)
        queue.settle()
    assert AHEAD not in memory
    queue.store()
    assert [item["sampled"] for item in memory[AHEAD]] == [3]
    assert queue.take(3).sampled == 3


def test_a_stage_shorter_than_the_lag_is_sampled_at_once() -> None:
    assert events(5, 2) == ["c0", "w0", "c1", "w1", "l0", "l1"]


def test_what_waits_is_in_the_memory() -> None:
    memory: dict[str, Any] = {}
    events(2, 5, memory)
    assert memory[AHEAD] == []
    queue = Ahead(memory, [], 2, 9, lambda number: lambda: Collected(sampled=number))
    queue.take(0)
    queue.store()
    assert [item["sampled"] for item in memory[AHEAD]] == [1, 2]
    assert events(2, 4, memory, start=1) == ["c3", "l1", "w3", "l2", "l3"]


def test_collected_rollouts_are_kept_whole() -> None:
    one, other = group([1.0, 0.0], key="a"), group([0.5], key="b")
    tasks = {"a": task("a"), "b": task("b")}
    found = Collected(groups=[one, other], kept=[one], metrics={"refills": 1.0}, sampled=9)
    again = Collected.unpacked(found.packed(tasks), list(tasks.values()))
    assert again.packed(tasks) == found.packed(tasks)
    assert [t.score for g in again.groups for t in g] == [t.score for g in found.groups for t in g]
    assert again.kept[0].trajectories[0].facts == ()


def test_rollouts_of_a_task_that_was_made_meanwhile_cannot_wait() -> None:
    with pytest.raises(UserError, match=r"this schedule keeps rollouts.* task 'a' was made while sampling"):
        Collected(groups=[group([1.0], key="a")]).packed({"b": task("b")})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)


def recipe_with(schedule: Any, tiny: Path, folder: Path, steps: int = 5) -> Recipe:
    (folder / "mine.py").write_text(SCORE)
    recipe = made_small(grpo(), tiny)
    stage: Any = recipe.stages["rl"]
    stage = replace(stage, steps=steps, reward=Function(path=f"{folder}/mine.py:score"))
    return replace(recipe, stages={"rl": stage}, schedule=schedule)


def trained(trajectory: Trajectory) -> list[int]:
    return [int(segment.version) for segment in trajectory.segments if segment.trained]


@pytest.mark.slow
def test_a_lag_of_zero_is_in_turn(tiny: Path, tmp_path: Path) -> None:
    models, records = [], []
    for name, schedule in (("turn", InTurn()), ("zero", Lagged(steps=0))):
        policy, store = run(recipe_with(schedule, tiny, tmp_path, 3), tmp_path / name)
        models.append(policy["policy"].state_dict())
        records.append(store.metrics())
    assert records[0] == records[1]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_step_s_is_sampled_with_the_weights_of_step_s_1_k(tiny: Path, tmp_path: Path) -> None:
    """The first steps equal those of a run whose weights never move; the lagged run's others are of older weights."""
    _, store = run(recipe_with(Lagged(steps=2), tiny, tmp_path), tmp_path / "lagged")
    versions = [{row["version"] for row in store.rollouts(step)} for step in range(1, 6)]
    assert versions == [{0}, {0}, {0}, {1}, {2}]


@pytest.mark.slow
def test_a_lagged_run_resumes_to_the_bit(tiny: Path, tmp_path: Path) -> None:
    recipe = recipe_with(Lagged(steps=2), tiny, tmp_path)
    models, whole = run(recipe, tmp_path / "whole")
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=4)
    assert again.metrics() == whole.metrics()
    for step in whole.rollout_steps():
        assert again.rollouts(step) == whole.rollouts(step)
    weights = resumed["policy"].state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in models["policy"].state_dict().items())


def test_a_recipe_without_a_stage_that_samples_ahead_is_refused(tiny: Path) -> None:
    recipe = replace(made_small(sft(), tiny), schedule=Lagged())
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="no stage of this recipe samples ahead"):
        context.check(context.first_models())
