"""STP: one model conjectures and proves, and learns from conjectures that it barely proves and from correct proofs.

Source: arXiv:2502.00212, and its release (kfdong/STP at 2b5fe8b). The loop is the stage `conjectures`: seeds with
lemmas, conjectures, proofs, conjectures with a pass rate strictly between 0 and 1/4, without trivial ones, weighted to
lie where unproved targets do, proofs of the last three rounds, and a last training from the first weights.

    posttrain run stp tasks=mine.jsonl rounds.reward=mine.py:check    # columns: prompt, statement
    # rounds.prove='{statement}' rounds.end=':=' rounds.marker=. rounds.delimiters='[" "]' for another language

Differs: eight rounds of 8 tries in place of twelve of 32, after one of 64; as the stage. Statements are sums and proofs
derivations, checked step by step; a lemma is a step of a proof.

No row is claimed. One seed (``python docs/experiments/conjectures.py --seeds 1``): neither proves a hard target. Of the
targets of five numbers, none of which the warm-up proves, expert iteration proves 89 % in eight rounds and 717,580
sampled tokens, STP 96 % in 889,628. The mean pass rate of conjectures is .69 in the second round and .78 in the last;
1.5 % of them are within the band, since conjectures are no longer than what is proved.
"""

from dataclasses import replace
from typing import Final

from posttrain.errors import UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipes.changes import with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.theorems import theorems
from posttrain.stages.conjectures import Conjectures

PARENT: Final = "sft"
SETTING: Final = "theorems"
PAPER: Final = "arXiv:2502.00212"
ROWS: Final = ()


def stp(recipe: Recipe | None = None) -> Recipe:
    """A change to expert iteration: conjectures near the limit of the prover are tried and learned from as well."""
    recipe = sft(recipe or theorems())
    stages = {
        name: replace(stage, conjecture=True, retrain=True) if isinstance(stage, Conjectures) else stage
        for name, stage in recipe.stages.items()
    }
    if not any(isinstance(stage, Conjectures) for stage in stages.values()):
        raise UserError(
            f"recipe '{recipe.name}' has no stage of kind conjectures, which states how a statement is asked for and "
            "proved; begin with setting=theorems and give it your targets"
        )
    copy = Model(source="role:policy")
    recipe = with_models(recipe, {"base": copy, "embedder": replace(copy, head="reward")})
    return replace(recipe, name="stp", stages=stages)
