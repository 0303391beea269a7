"""DuoGuard: a generator is taught by DPO to write what a guard gets wrong, and the guard learns from that.

Source: arXiv:2502.05163, its release (yihedeng9/DuoGuard at 5e6bd56) and a public summary. The loop is the stage
`guard_rounds`: candidates by a generator, a label filter, pairs of what the guard gets wrong and right, DPO with beta
.01 and .4 times the mean negative log-likelihood of the chosen one, and a guard with twelve outputs that is trained
anew on seeds and on all that it got wrong. With ``rounds.learns=false`` the generator is frozen.

    posttrain run duoguard tasks=mine.jsonl rounds.consistent=mine.py:kept    # columns: prompt, text, categories

Differs: five rounds of 64 seeds with 8 candidates; as the stage. Texts are three words, of which one may be harmful, in
disguises that stand for other languages; the label filter is a rule. Pairs are of one language, not mixed in equal
shares.

No row is claimed: the default run does not learn (one seed, ``python docs/experiments/guard_game.py --seeds 1``). The
label filter keeps 3 % of the candidates, which gives no pairs, and the guard ends at .504 as it does with a frozen
generator.
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
ROWS: Final = ()


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
