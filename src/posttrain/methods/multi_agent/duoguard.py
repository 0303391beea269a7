"""DuoGuard: a generator is taught by DPO to write what a guard gets wrong, and the guard learns from that.

Source: arXiv:2502.05163, its release (yihedeng9/DuoGuard at 5e6bd56) and a public summary. The loop is the stage
`guard_rounds`: candidates by a generator, a label filter, pairs of what the guard gets wrong and right, DPO with beta
.01 and .4 times the mean negative log-likelihood of the chosen one, and a guard with twelve outputs that is trained
anew on seeds and on all that it got wrong. With ``rounds.learns=false`` the generator is frozen.

    posttrain run duoguard tasks=mine.jsonl rounds.consistent=mine.py:kept    # columns: prompt, text, categories

Differs: eight rounds of 128 seeds with 8 candidates; as the stage. Texts are three words, of which one may be harmful,
in disguises that stand for other languages; the label filter is a rule. Pairs are of one language, not mixed in equal
shares.

Measured here: five seeds (``python docs/experiments/guard_game.py --seeds 5``), on other texts in each form of their
words. The guard's seeds are plain, and it is right on 1.000 of plain texts with either generator. Backwards it is right
on .743 [.682, .805] with a frozen generator and .795 [.708, .882] with one that learns (difference within seeds .052
[-.058, .161]), without vowels on .718 [.640, .795] and .787 [.752, .823] (.070 [.022, .118]). Without the label filter
the generator writes texts of other categories: the guard is right on .821 [.744, .897] of plain ones.
"""

from dataclasses import replace
from typing import Final

from posttrain.errors import UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.tree import Recipe
from posttrain.settings.disguises import disguises
from posttrain.stages.guard_rounds import GuardRounds

PARENT: Final = "sft"
SETTING: Final = "disguises"
PAPER: Final = "arXiv:2502.05163"
ROWS: Final = (243,)


def duoguard(recipe: Recipe | None = None) -> Recipe:
    """A change to augmentation by a frozen generator: it learns to write what the guard gets wrong."""
    recipe = sft(recipe or disguises())
    stages = {
        name: replace(stage, learns=True) if isinstance(stage, GuardRounds) else stage
        for name, stage in recipe.stages.items()
    }
    if not any(isinstance(stage, GuardRounds) for stage in stages.values()):
        raise UserError(
            f"recipe '{recipe.name}' has no stage of kind guard_rounds, whose generator this method teaches; begin "
            "with setting=disguises and give it your seeds"
        )
    return replace(recipe, name="duoguard", stages=stages)
