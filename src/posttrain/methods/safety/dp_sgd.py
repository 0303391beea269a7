"""DP-SGD: SFT with differential privacy for each demonstration, by clipped gradients of records and noise.

Source: Abadi et al. 2016, arXiv:1607.00133, algorithm 1; groups of parameters as in McMahan et al. 2018,
arXiv:1710.06963. A group is the pair of matrices of an adapter; the noise multiplier is that of all groups together. By
default the noise is the smallest with which all steps keep within the budget.

    posttrain run dp_sgd tasks=records.jsonl epsilon=4    # columns: prompt, completion; optional: canary, digits
    posttrain diagnose exposure RUN tasks=records         # bits of each canary that the model shows

The claim is (epsilon, delta) for adding or removing one demonstration, about the trained model. The folder of the run
has losses and rollouts without noise: it is not to be published, nor are held-out numbers covered.

Differs: batches are Poisson samples, and divided by their expected size. Renyi accounting in place of the moments
accountant, which gives the same numbers.
"""

from dataclasses import replace
from typing import Final

from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.private_records import private_records
from posttrain.training.privacy import Privacy

PARENT: Final = "sft"
SETTING: Final = "private_records"
PAPER: Final = "arXiv:1607.00133"
ROWS: Final = ()


def dp_sgd(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: private updates."""
    recipe = sft(recipe or private_records())
    stage = sft_of(recipe)
    learner = replace(stage.learner, clip_norm=None, epochs=1, minibatches=1, privacy=Privacy())
    return with_stage(replace(recipe, name="dp_sgd"), replace(stage, learner=learner))
