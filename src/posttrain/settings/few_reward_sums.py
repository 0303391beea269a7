"""Few reward sums: harder sums, and fewer of them, rewarded by a reward model that is trained on preferences first.

As `reward_model_sums`, with sums of three or four numbers, a part of which the bundled model gets wrong, so that pairs
can be made of its own responses.
"""

from dataclasses import replace

from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_sums import reward_model_sums


def few_reward_sums() -> Recipe:
    """500 sums, 20 steps for the reward model, then 20 of reinforcement."""
    tasks = WorkedSolutions(size=500, terms=(3, 4), rejected="unworked")
    return replace(reward_model_sums(), name="few_reward_sums", tasks=tasks)
