"""Reflected sums: the bundled model judges which of two sums is larger, and checks its results before it does.

As `compared_sums`, with thoughts that have both results and, in a third of the items, "wait" and both results again
(`tasks/judge_items`), so that a verdict can follow a second look. The reward reads the last letter; held-out verdicts
count after the thinking only, and the rollout of the evaluation can make the thinking go on
(`evaluation.rollout.waits`), which it does not by itself.
"""

from dataclasses import replace

from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.rollouts.waiting import Waiting
from posttrain.components.tasks.compared_sums import ComparedSums
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.components.tasks.mixture import Mixture
from posttrain.recipes.changes import rl_of, sampling_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.compared_sums import compared_sums


def reflected_sums() -> Recipe:
    """100 steps of imitation on 600 items, then 20 of reinforcement with 16 items and 8 replies each."""
    recipe = compared_sums()
    tasks, held_out = recipe.tasks, recipe.evaluation.tasks
    assert isinstance(tasks, JudgeItems) and isinstance(held_out, JudgeItems), "the setting it is made from has items"
    forced = Waiting(n=1, waits=0, wait=", wait, ", answer_tokens=32, sampling=sampling_of(rl_of(recipe)))
    recipe = replace(
        recipe,
        name="reflected_sums",
        tasks=Mixture(
            sources={"once": tasks, "twice": replace(tasks, tasks=ComparedSums(size=1000, seed=3), thoughts="again")},
            shares={"once": 2, "twice": 1},
        ),
        evaluation=replace(
            recipe.evaluation,
            tasks=held_out,
            verifier=RightVerdict(parser="after_thinking"),
            rollout=forced,
        ),
    )
    return with_stage(recipe, replace(sft_of(recipe), limit=600, max_steps=100))
