"""Single sums: arithmetic with one completion per task and more tasks per step."""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def single_sums() -> Recipe:
    """64 tasks per step with one completion each, for methods that do not compare completions of a task."""
    recipe = replace(arithmetic(), name="single_sums", evaluation=Evaluation(verifier=Match()))
    rollout = Independent(n=1, sampling=Sampling(max_tokens=64))
    return with_stage(recipe, replace(rl_of(recipe), prompts=64, rollout=rollout))
