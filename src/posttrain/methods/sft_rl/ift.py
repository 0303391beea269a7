"""IFT: SFT on inputs that are mixed with the model's own choices, in which early tokens answer for later losses.

Source: Hua et al. 2024, arXiv:2405.11870, and its released code; the paper itself was not read. Two forward passes and
one backward: the first gives the model's choice for every token of a demonstration, the second sees embeddings of which
0.2 is that choice. A token's weight is the discounted sum of the losses from it on (gamma 0.95), 1 on average over a
sequence, and is differentiated too. The loss is the mean over demonstrations, so that short ones weigh as much as long
ones. `objective.gamma=0 objective.mixing=0` is the release's baseline.

    posttrain run ift tasks=mine.jsonl model=FOLDER    # columns: prompt, completion, answer (to evaluate)

Differs: of the release's variants the default only, without its schedule of lambda, which is constant by default.

Measured here: against SFT (one epoch of demonstrated sums, 5 seeds): greedy accuracy 81.2 % against 83.6 %, -2.4 points
[-6.3, +1.5], loss of held-out demonstrations 0.0206 nats a token against 0.0203, +0.0003 [-0.0008, +0.0013]: no
difference that five seeds can show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.intuitive import Intuitive
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations

PARENT: Final = "sft"
SETTING: Final = "demonstrations"
PAPER: Final = "arXiv:2405.11870"
ROWS: Final = (86,)
INHERITED: Final = {"learner": "RMSprop, rate 5e-7, batches of 512, gradient norm 10, three epochs"}


def ift(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: weights by later losses, mixed inputs, the mean over sequences."""
    recipe = with_imitation(recipe or demonstrations())
    stage = replace(sft_of(recipe), objective=Intuitive(), reducer=Sequences())
    return with_stage(replace(recipe, name="ift"), stage)
