"""ExPO: GRPO with a likelihood term on self-explanations, sampled by the policy given the reference answer.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834, its ExP-GRPO: the objective of GRPO plus beta log pi(c, a | q), for
every question, where c is sampled conditioned on the answer a, and q does not contain it. Beta 0.04 is the paper's
best, 0.5 is worse than GRPO. Advantages are of the ordinary rollouts alone. In a group without a correct rollout this
term is the only gradient. The likelihood is the mean over tokens; with `objective.demonstrated.per=sequence` it is that
of the sequence. With `rollout.when=unsolved` explanations are sampled only where every rollout failed.

Differs: the objective is from notes on the paper's third version, since the paper was not available. Explanations are
sampled in every step. There is no KL. ExP-DPO, offline and renewed, is `exp_dpo` and `exp_dpo_renewed`. The prompt for
explanations is that of the bundled model, which reads no English and was trained on this prompt; for other models set
`rollout.request`.

Measured here: against the same with explanations sampled but not trained on (10 steps of 8 tasks after the warm-up, 5
seeds): held-out accuracy 44.8 % against 45.4 %, -0.6 points [-2.5, +1.3]; with beta 0.5 40.2 %, -5.2 points [-9.8,
-0.6]. The bundled model's explanations follow the sum, not the given answer: an explanation is 0.92 nats per token less
likely under the model than the task's worked solution (0.75 to 1.09, one model), so that neither property of the paper
holds (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.reducers.groups import Groups
from posttrain.components.rollouts.explained import Explained
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums

PARENT: Final = "grpo"
SETTING: Final = "explained_sums"
PAPER: Final = "arXiv:2507.02834"
ROWS: Final = (118,)

REQUEST: Final = "#### {answer}\n{question}"
"""The prompt of the warm-up in the setting `explained_sums`: the answer, then the question as usual."""


def expo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a likelihood term on explanations in addition to the groups, averaged over questions."""
    recipe = recipe or explained_sums()
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Explained(n=rollouts_of(stage), request=REQUEST, sampling=sampling_of(stage)),
        filters=every_group(stage),
        objective=ByOrigin(sampled=stage.objective, weight=0.04),
        reducer=Groups(),
    )
    return with_stage(replace(recipe, name="expo"), stage)
