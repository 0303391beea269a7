"""Ranked replies: replies to students, ranked by what they should have; one that has no end is the last.

Held-out replies are correct that have all three: the word "hint", the student's name and "why".
"""

from dataclasses import replace

from posttrain.components.rewards.ended import Ended
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.graded_replies import graded_replies


def ranked_replies() -> Recipe:
    """At most 30 steps of imitation, then 40 of 8 prompts with 8 replies each."""
    recipe = replace(graded_replies(), name="ranked_replies")
    stage = rl_of(recipe)
    return with_stage(recipe, replace(stage, reward=Ended(of=stage.reward, cut=-1.0)))
