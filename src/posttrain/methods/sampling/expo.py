"""ExPO: the policy explains each question with the answer in sight, and learns that explanation beside GRPO.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834, its ExP-GRPO: the objective of GRPO plus beta log pi(c, a | q), for
every question, where c was drawn with the answer a in sight and q does not show it; beta 0.04 is the paper's best, 0.5
does worse than GRPO. Advantages are of the attempts alone. In a group of failures this term is all that is learned. The
likelihood is the mean over tokens; `objective.demonstrated.per=sequence` takes the whole's. `rollout.when=unsolved`
explains only where every attempt failed.

Differs: the paper was not at hand, but its objective from notes on the third version. Explanations are drawn in every
step. There is no KL. ExP-DPO is not here. The request for an explanation is for the bundled model, which knows no
English and was taught it; a model that reads is asked by `rollout.request`.

Measured here: against the same with explanations drawn and not learned (10 steps of 8 tasks after the lesson, 5 seeds):
held-out accuracy 44.8 % against 45.4 %, -0.6 points [-2.5, +1.3]; with beta 0.5 40.2 %, -5.2 points [-9.8, -0.6]. The
bundled model follows the sum and not the answer that it sees: an explanation is 0.92 nats a token less likely under it
than the task's working (0.75 to 1.09, one model), so that neither property of the paper holds (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.reducers.groups import Groups
from posttrain.components.rollouts.explained import Explained
from posttrain.recipes.changes import attempts_of, every_group, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums

PARENT: Final = "grpo"
SETTING: Final = "explained_sums"
PAPER: Final = "arXiv:2507.02834"
ROWS: Final = (118,)

REQUEST: Final = "#### {answer}\n{question}"
"""That of the lesson in the setting `explained_sums`: the answer, then the question as it always is."""


def expo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: explanations are learned beside the groups, and each question counts the same."""
    recipe = recipe or explained_sums()
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Explained(n=attempts_of(stage), request=REQUEST, sampling=sampling_of(stage)),
        filters=every_group(stage),
        objective=ByOrigin(sampled=stage.objective, weight=0.04),
        reducer=Groups(),
    )
    return with_stage(replace(recipe, name="expo"), stage)
