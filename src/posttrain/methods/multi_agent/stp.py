"""STP: one model conjectures and proves, and learns from conjectures that it barely proves and from correct proofs.

Source: arXiv:2502.00212, and its release (kfdong/STP at 2b5fe8b). The loop is the stage `conjectures`: seeds with
lemmas, conjectures, proofs, conjectures with a pass rate strictly between 0 and 1/4, without trivial ones, weighted to
lie where unproved targets do, proofs of the last three rounds, and a last training from the first weights.

    posttrain run stp tasks=mine.jsonl rounds.reward=mine.py:check    # columns: prompt, statement
    # rounds.prove='{statement}' rounds.end=':=' rounds.marker=. rounds.delimiters='[" "]' for another language

Differs: eight rounds of 8 tries in place of twelve of 32, after one of 64; as the stage. Statements are sums and proofs
derivations, checked step by step; a lemma is a step of a proof.

Measured here, five seeds, eight rounds (``python docs/experiments/conjectures.py --seeds 5``): with as many sampled
tokens STP proves fewer of the hard targets than expert iteration, which tries each of them three times as often: 30.1
against 36.9 % (-6.8 points [-12.5, -1.2]), the reverse of the claim. Of 60 other hard statements the model that STP
made proves more at once: 38.7 against 28.3 % (+10.3 points [1.6, 19.0]). Conjectures become harder, from a mean pass
rate of .73 to .46 [.28, .64], and do not stay within the band: 3 % of them are in it, since a pass rate here is mostly
0 or 1. Without the filter of trivial ones, and without matching, nothing is seen to change (pass rates at the end .52
and .57, entropy of how many numbers conjectures have 2.8 and 2.7 bits, with both 2.9).
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
ROWS: Final = (19,)


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
