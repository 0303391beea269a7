"""Quickstart: a tiny model learns sums with written working, first by imitation, then by reinforcement.

A few demonstrations show the bundled model what a solution looks like; reinforcement on the answers alone then makes it
get them right. Takes about a minute on two cores.
"""

from dataclasses import replace

from posttrain.recipe import Evaluation, Recipe
from posttrain.recipes._change import rl_of, sft_of
from posttrain.recipes.grpo import grpo
from posttrain.recipes.sft import sft
from posttrain.rewards.match import Match


def quickstart(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: imitation of a few demonstrations comes first."""
    recipe = recipe or grpo()
    imitation = replace(sft_of(sft()), max_steps=20)
    return replace(
        recipe,
        name="quickstart",
        stages={"sft": imitation, "rl": rl_of(recipe)},
        evaluation=Evaluation(verifier=Match(), every=20),
    )
