"""Tool rounds: a new model of 140,000 weights imitates easy tool requests, then harder ones, and learns from pairs.

Three demonstrations in five have the right calls, the others random ones, so that answers are often wrong in a part
after imitation. Requests of the last stage have right references. Held-out requests count as correct if layout and
calls are.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.settings.tool_requests import tool_requests


def tool_rounds() -> Recipe:
    """Four epochs of imitation of one call, two of up to two parameters, then pairs of 600 requests."""
    recipe = tool_requests()
    warm, pairs = sft_of(recipe), preference_of(sum_pairs())
    easy = replace(warm, tasks=ToolRequests(size=2000, seed=1, right=0.6))
    hard = replace(warm, epochs=2.0, tasks=ToolRequests(size=1000, seed=2, level=2, right=0.6))
    learner = replace(pairs.learner, optimizer=AdamW(lr=3e-5))
    return replace(
        recipe,
        name="tool_rounds",
        tasks=ToolRequests(size=800, level=2, right=1.0),
        stages={"easy": easy, "hard": hard, "pairs": replace(pairs, batch=16, epochs=2.0, learner=learner)},
    )
