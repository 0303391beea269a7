"""GenCLS++: what is written, what is rewarded, and both ways of inference from one run."""

import asyncio
from collections.abc import Callable

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.methods.sft_rl.gencls import ROWS, gencls
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.problems import Problems
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.types import Group, Segment, Task, Trajectory

Train = Callable[[Recipe], tuple[Models, RunStore]]


def reward_of(text: str, answer: str) -> float:
    segments = (Segment(actor="policy", token_ids=np.zeros(0, np.int64), text=text),)
    trajectory = Trajectory(task=Task(key="k", prompt="p", answer=answer), segments=segments, stop_reason="stop")
    [score] = asyncio.run(rl_of(gencls()).reward.score(Group(trajectories=(trajectory,)), RewardContext()))
    return score.value


def test_the_reward_is_of_the_label_alone() -> None:
    assert ROWS == (298,)
    assert reward_of(" mirror", "mirror") == 1.0 and reward_of(" abcd dcba\nmirror", "mirror") == 1.0
    assert reward_of(" 3", "3") == 1.0 and reward_of(" 13", "3") == 0.0
    assert [reward_of(text, "mirror") for text in (" double", " unsure", "mirror rising", "", "mirrors")] == [0.0] * 5


def test_training_and_inference_have_strategies_of_their_own() -> None:
    recipe = override(gencls(), ["tasks.training=[{numbers: true}]", "tasks.asked={definitions: true, numbers: true}"])
    problems = Problems(recipe)
    assert all(task.answer in "01234" and "never go back" in str(task.prompt) for task in problems.held_out)  # type: ignore[operator]
    trained = problems.of(recipe.stages["rl"])
    assert not any("never go back" in str(task.prompt) for task in trained)
    assert len(trained) + len(problems.held_out) == 800


def test_one_run_has_written_and_likeliest_answers_after_each_stage(  # type: ignore[no-untyped-def]
    tmp_path, train: Train
) -> None:
    from posttrain.policies.folder import new_folder

    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=128)
    sizes = ("tasks.tasks.size=60", "evaluation.holdout=6", "sft.max_steps=2", "rl.steps=1")
    more = ("prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=8", "threads=1", f"model={folder}")
    _, store = train(override(gencls(), [*sizes, *more]))
    evaluations = store.evaluations()
    assert [entry["name"] for entry in evaluations] == ["before", "sft", "rl"]
    for entry in evaluations:
        assert entry["candidates"]["tasks"] == 6 and 0.0 <= entry["candidates"]["accuracy"] <= 1.0
        assert 0.0 <= entry["candidates"]["outside"] <= 1.0
    assert evaluations[0]["candidates"]["outside"] > 0.9, "a new model writes no label"
