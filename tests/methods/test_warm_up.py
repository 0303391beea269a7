"""Warm-up: puzzles first, then GRPO on a hundred tasks that are seen again and again, none of them held out."""

from collections.abc import Callable
from typing import Any

from posttrain.components.tasks.knights import Knights
from posttrain.datasets.keys import problem
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.warm_up import warm_up
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.problems import Problems
from posttrain.settings.hundred_sums import hundred_sums
from posttrain.types import Task
from tests.components.rewards.judging import judge

Small = Callable[..., Recipe]


def test_the_stages_and_their_settings() -> None:
    recipe = warm_up()
    assert list(recipe.stages) == ["base", "warm_up", "rl"]
    stage: Any = recipe.stages["warm_up"]
    assert isinstance(stage.tasks, Knights) and (stage.epochs, stage.learner.clip_norm) == (5.0, 0.1)
    rl: Any = rl_of(recipe)
    sampling = rl.rollout.sampling
    assert (sampling.temperature, sampling.top_p, rl.learner.clip_norm, rl.penalties) == (0.7, 0.95, 0.1, {})


def test_the_levels() -> None:
    reward, task = rl_of(warm_up()).reward, Task(key="k", prompt="Q: 6*7\nA:", answer="42")
    texts = {
        "<think>6*7</think><answer>42</answer>": 2.0,
        "<think>6*7</think><answer>41</answer>": -0.5,
        "42": -2.0,
        "<think>6*7</think><answer>42</answer> and so on": -2.0,
    }
    assert {text: judge(reward, text, task).value for text in texts} == texts


def test_a_hundred_prompts_are_cycled_and_none_is_held_out() -> None:
    recipe = warm_up()
    problems, stage = Problems(recipe), rl_of(recipe)
    pool = problems.of(stage)
    tested = {problem(task) for task in problems.held_out}
    for own in recipe.stages.values():
        assert not tested & {problem(task) for task in problems.of(own)}
    assert 50 < len(pool) <= 100
    state, seen = stage.curriculum.start(), set()
    for step in range(-(-len(pool) // stage.prompts) + 1):
        state, chosen = stage.curriculum.select(state, pool, stage.prompts, seed=0, step=step)
        seen |= {pick.task.key for pick in chosen}
    assert seen == {task.key for task in pool}


def test_both_arms_begin_from_the_same_base() -> None:
    warmed, plain = warm_up(hundred_sums()), grpo(hundred_sums())
    assert warmed.stages["base"] == plain.stages["base"] and warmed.seed == plain.seed
    assert warmed.evaluation == plain.evaluation
