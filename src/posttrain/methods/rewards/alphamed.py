"""AlphaMed: GRPO with nothing but the letter of a multiple-choice answer, on a mixture of measured difficulties.

Source: arXiv:2505.17952, its opening, project page and notes about it. The reward is 1 for the right option and 0 for
anything else (`rewards/choice`): no format, no length, no imitation of thoughts. Before training the model answers each
question 5 times; questions get levels from 1 (5 of 5 right) to 6 (none), and as many of each are trained on
(`selections/by_level`). A single level is `selection.levels=[1]`, a number of questions `selection.count=300`.

    posttrain run alphamed tasks=mine.jsonl model=FOLDER
    # columns: question, options (a list), answer (a letter or the text of an option)

Differs: hyper-parameters are the setting's; neither code nor parser is published. Here a model that cannot answer at
all first imitates worked answers, which is the setting's; the paper starts from instruction-tuned models.

Measured here over five seeds (40 steps; 60 questions of the named levels, 300 in the default run). Imitation leaves
71.4 % [54.0, 88.8] of greedy and 44.3 % [33.3, 55.3] of sampled held-out answers right.

    level 1             greedy -29.0 points [-41.8, -16.2]     sampled  -3.6 [-8.6, +1.3]     64 % without a gradient
    level 6             greedy -10.1 points [-22.2, +2.0]      sampled  -0.5 [-10.7, +9.6]     7 %
    levels 1, 3 and 5   greedy  -1.8 points [-5.4, +1.8]       sampled  +9.7 [+7.9, +11.5]    27 %
    all levels, 300     greedy  +3.0 points [-4.4, +10.4]      sampled +10.2 [+7.8, +12.5]    17 %

So a mixture is better than one level, and the gain is one of sampled answers; what groups of level 6 are rewarded for
is luck, as one letter in four is right. A model that imitated for a quarter as long, and was below chance, learned
nothing in 20 steps. 1,200 easy questions against 300 informative ones were not compared.
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
ROWS: Final = (244,)


def alphamed(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the letter as the only reward, and equally many tasks of every measured difficulty."""
    recipe = grpo(recipe or choices())
    stage = rl_of(recipe)
    letter = stage.reward if isinstance(stage.reward, Choice) else Choice()
    stage = replace(stage, reward=letter, selection=ByLevel(reward=letter))
    return with_stage(replace(recipe, name="alphamed"), stage)
