r"""CPL: preferences between sibling steps of a search, with a margin by their values, in two rounds with a value model.

Source: arXiv:2409.08642, and its released code (keesh0410/CPL-Reasoning at 61b99b4). From the imitated model, which is
also the reference: a search over steps gives every step a value in [-1, 1], and siblings with values on both sides of 0
are pairs. Step-APO subtracts the difference of the values from the logit of DPO, outside beta: beta 0.3, target 1. The
model then imitates its own correct solutions, at most four of a question, before the pairs of the next round, in which
a value model estimates prefixes (200 expansions in the first round, 100 in the second).

    posttrain run cpl tasks=mine.jsonl model=FOLDER 'dpo.selection.pairing.delimiter="\n"' \
        'dpo_2.selection.pairing.delimiter="\n"'    # columns: prompt, completion (a solution, a step a line), answer

DPO on the same pairs: `dpo.loss.target=0 dpo_2.loss.target=0`. A step is a line; plans are what the model writes there.

Differs: few-shot prompts of the first round are the setting's imitation. A quarter of the expansions, for two cores.
The value model is trained on the prefixes and solutions of a tree search of its own (`stages/value_model`), not on the
values of this one. Solutions that are imitated are sampled anew. Learning rates and batches are the setting's. The
optimizer of each stage begins anew.

Measured here: known trees, twenty for each of 5 seeds (`docs/experiments/plan_tree.py`): Q has a correlation of .77
[.66, .88] with the exact values, and of 3.9 pairs of a tree 99.7 % are in order. Log-ratio gaps after 400 steps are
21.8, 19.1 and 16.8 for differences of 1.6, .8 and .1, and 16.5 for each by DPO. The probability of a correct leaf is
.752 [.702, .801], .749 [.703, .794] by DPO on the same pairs, .505 before: the margin shifts gaps, and does not show in
success (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.pairings.siblings import Siblings
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.search.tree import Tree
from posttrain.components.selections.paired import Paired
from posttrain.components.selections.sampled import Sampled
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.models import Model
from posttrain.recipes.changes import preference_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.stepwise_sums import stepwise_sums
from posttrain.stages.value_model import ValueModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "sft_dpo"
SETTING: Final = "stepwise_sums"
PAPER: Final = "arXiv:2409.08642"
ROWS: Final = (150,)

DELIMITER: Final = ";"
"""What ends a step of the bundled model's solutions."""


def cpl(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT then DPO: pairs are siblings of a search, with a margin, in two rounds."""
    recipe = sft_dpo(recipe or stepwise_sums())
    verifier = recipe.evaluation.verifier
    if verifier is None:
        raise UserError(
            f"recipe '{recipe.name}' has no verifier to say which solutions are correct; give "
            "evaluation.verifier=match, or the reward of your tasks"
        )
    sft, pairs = sft_of(recipe), preference_of(recipe)
    sampling = replace(recipe.evaluation.sampling or Sampling(max_tokens=64), temperature=0.7)
    steps = Siblings(iterations=50, delimiter=DELIMITER, sampling=sampling)
    first = replace(
        pairs,
        loss=DPO(beta=0.3, target=1.0),
        selection=Paired(pairing=steps, reward=verifier, n=1, max_tokens=sampling.max_tokens, skip=pairs.skip),
        skip=0,
    )
    valued = Paired(
        pairing=replace(steps, iterations=25, value_role="value"),
        reward=verifier,
        n=1,
        max_tokens=sampling.max_tokens,
        skip=pairs.skip,
    )
    own = Sampled(reward=verifier, use="solved", n=4, most=4, max_tokens=sampling.max_tokens)
    values = ValueModelTraining(
        search=Tree(delimiter=DELIMITER, sampling=sampling, iterations=6, keep=3, exploration=0.2, value_role=None),
        reward=verifier,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    recipe = with_models(recipe, {"value": Model(source="role:policy", head="reward", trained=True)})
    stages = {name: first if stage is pairs else stage for name, stage in recipe.stages.items()}
    more = {"values": values, "sft_2": replace(sft, selection=own), "dpo_2": replace(first, selection=valued)}
    if taken := sorted(more.keys() & stages.keys()):
        raise UserError(f"recipe '{recipe.name}' has a stage named '{taken[0]}' already; give it another name")
    return replace(recipe, name="cpl", stages={**stages, **more})
