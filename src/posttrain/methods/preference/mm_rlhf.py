"""MM-RLHF: a reward model that criticizes before it scores, and DPO on all ranked pairs with a beta by its margin.

Source: arXiv:2502.10391, section 4, and its released code (Kwai-YuanQi/MM-RLHF at 7c8af1d). The model learns critiques
and, at their last token, scores of pairs. Every two texts of different rank are a pair, with the margin r(chosen) -
r(rejected) of its scores, and beta (1 + w (1 - exp(-k margin))) inside the sigmoid, beta 0.1, w 0.5, k 0.5; a negative
margin, where the model disagrees with the ranks, leaves beta. The loss adds 0.25 of the chosen text's mean loss of a
token.

    posttrain run mm_rlhf tasks='{kind: gathered, tasks: mine.jsonl}' model=FOLDER critique_model.tasks=pairs.jsonl
    # mine.jsonl: prompt, completion, rating (a rank, higher is better), any number of rows of a prompt
    # pairs.jsonl: prompt, chosen, rejected, chosen_critique, rejected_critique

DPO on the same pairs: `loss.loss.growth=0`. Twice the growth of beta: `loss.loss.growth=1`. Pictures: a column image.

Differs: w and k are those of an annotated copy of the paper (its script has w 0.1). The release replaces each pair's
beta by a value from the policy's own margins unless its default is changed; here it is the paper's. Critiques are those
of the data, not enlarged by a language model. Sizes and rates are the setting's.

Measured here: a linear policy, 20 % of the pairs flipped (20 seeds, `docs/experiments/reward_margins.py`): with 200
pairs accuracy is 85.8 % [84.2, 87.3] by DPO, +2.4 points [2.0, 2.8] with w = 0.5, +4.8 [4.1, 5.5] with w = 2, and -1.4
[-2.3, -0.5] with the margins of other pairs; with 1,000 pairs +1.4, +2.7 and -0.4. Pairs that are not flipped have 80,
84 and 90 % of the gradient with w = 0, 0.5 and 2 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.ranks import Ranks
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.rewards.critiqued import Critiqued
from posttrain.components.selections.paired import Paired
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.ranked_sums import ranked_sums
from posttrain.stages.critique_model import CritiqueModelTraining

PARENT: Final = "dpo"
SETTING: Final = "ranked_sums"
PAPER: Final = "arXiv:2502.10391"
ROWS: Final = (238,)

CRITIQUE_TOKENS: Final = 24


def mm_rlhf(recipe: Recipe | None = None) -> Recipe:
    """A change to DPO: all ranked pairs, scored after a critique, with a beta of their own and an SFT term."""
    recipe = dpo(recipe or ranked_sums())
    critic = next((s for s in recipe.stages.values() if isinstance(s, CritiqueModelTraining)), None)
    if critic is None:
        raise UserError(
            f"recipe '{recipe.name}' has no stage critique_model, whose model scores pairs after a critique; add one "
            "with pairs that have critiques, or start from the setting ranked_sums"
        )
    scores = Critiqued(
        role=critic.role, request=critic.request, sampling=Sampling(temperature=0.0, max_tokens=CRITIQUE_TOKENS)
    )
    stage = preference_of(recipe)
    stage = replace(
        stage,
        loss=RPO(loss=DPO(growth=0.5, rate=0.5), eta=0.25, length="mean", times_beta=False),
        selection=Paired(pairing=Ranks(), reward=scores, n=0),
    )
    return with_stage(replace(recipe, name="mm_rlhf"), stage)
