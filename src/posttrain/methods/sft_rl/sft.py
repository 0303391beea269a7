"""SFT: supervised fine-tuning on demonstrations, with the loss on completions only.

Source: Ouyang et al. 2022, arXiv:2203.02155, section 3.5 (step 1).

    posttrain run sft tasks=mine.jsonl model=FOLDER    # columns: prompt, completion, answer (to evaluate)

Differs: nothing known.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.reducers.tokens import Tokens
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.sft import SFT

PARENT: Final = None
SETTING: Final = "demonstrations"
PAPER: Final = "arXiv:2203.02155"
ROWS: Final = ()


def sft(recipe: Recipe | None = None) -> Recipe:
    """The root of the SFT methods: the likelihood of every token of a demonstration."""
    recipe = with_imitation(recipe or demonstrations())
    stage = replace(sft_of(recipe), objective=Likelihood(), reducer=Tokens())
    return with_stage(replace(recipe, name="sft"), stage)


def with_imitation(recipe: Recipe, *, epochs: float = 1.0) -> Recipe:
    """Puts an SFT stage of `epochs` epochs first in the recipe; unchanged if it has one."""
    if any(isinstance(stage, SFT) for stage in recipe.stages.values()):
        return recipe
    return replace(recipe, stages={"sft": replace(sft_of(demonstrations()), epochs=epochs), **recipe.stages})
