"""GSPO: GRPO with one length-normalized importance ratio per sequence, clipped much closer to one.

Source: Zheng et al. 2025, arXiv:2507.18071, sections 4.1 and 5.1 (clip 3e-4 and 4e-4).

    posttrain run gspo tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer

Differs: nothing known. With one update per batch, as by default here, all ratios are one, and GSPO is GRPO with another
reducer. With `learner.minibatches=4`, as in the paper, ratios differ from one and are clipped.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.sequence_clip import SequenceClip
from posttrain.components.reducers.sequences import Sequences
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2507.18071"
ROWS: Final = ()


def gspo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: one ratio per sequence, and the same weight for every sequence."""
    recipe = recipe or arithmetic()
    stage = replace(rl_of(recipe), objective=SequenceClip(), reducer=Sequences())
    return with_stage(replace(recipe, name="gspo"), stage)
