"""AlphaMed: GRPO with nothing but the letter of a multiple-choice answer, on a mixture of measured difficulties.

Source: arXiv:2505.17952, its opening, project page and notes about it. The reward is 1 for the right option and 0 for
anything else (`rewards/choice`): no format, no length, no imitation of thoughts. Before training the model answers each
question 5 times; questions get levels from 1 (5 of 5 right) to 6 (none), and as many of each are trained on
(`selections/by_level`). A single level is `selection.levels=[1]`, a number of questions `selection.count=300`.

    posttrain run alphamed tasks=mine.jsonl model=FOLDER
    # columns: question, options (a list), answer (a letter or the text of an option)

Differs: hyper-parameters are the setting's; neither code nor parser is published. Here a model that cannot answer at
all first imitates worked answers, which is the setting's; the paper starts from instruction-tuned models.

Measured here over five seeds (400 questions, 20 steps, 100 held-out): imitation leaves 17 % of the answers right, below
the 25 % of chance, and 20 steps do not change that: 17.0 % [12.6, 21.4] with equally many tasks of each level, 23.8 %
[14.7, 32.9] with all tasks, a difference that five seeds cannot show. No question had five answers of five right, so
that nothing was trained on with level 1 alone (17.4 % [14.2, 20.6]). The effect of the mixture is not shown, so that it
names no row.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.choice import Choice
from posttrain.components.selections.by_level import ByLevel
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.choices import choices

PARENT: Final = "grpo"
SETTING: Final = "choices"
PAPER: Final = "arXiv:2505.17952"
ROWS: Final = ()


def alphamed(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the letter as the only reward, and equally many tasks of every measured difficulty."""
    recipe = grpo(recipe or choices())
    stage = rl_of(recipe)
    letter = stage.reward if isinstance(stage.reward, Choice) else Choice()
    stage = replace(stage, reward=letter, selection=ByLevel(reward=letter))
    return with_stage(replace(recipe, name="alphamed"), stage)
