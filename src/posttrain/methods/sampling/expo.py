"""ExPO: the policy explains each question with the answer in sight, and learns that explanation beside GRPO.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834, its ExP-GRPO: the objective of GRPO plus beta log pi(c, a | q), for
every question, where c was drawn with the answer a in sight and q does not show it; beta 0.04 is the paper's best, 0.5
does worse than GRPO. Advantages are of the attempts alone. In a group of failures this term is all that is learned. The
likelihood is the mean over tokens; `objective.demonstrated.per=sequence` takes the whole's. `rollout.when=unsolved`
explains only where every attempt failed.

Differs: the paper was not at hand, but its objective from notes on the third version. Explanations are drawn in every
step. There is no KL. ExP-DPO is not here. The bundled model knows no English, and is taught first, by imitation on
other sums, what it looks like to explain an answer. Sizes are for it too.

Measured here: against the same with explanations drawn and not learned (10 steps of 8 tasks after the lesson, 5 seeds):
held-out accuracy 44.8 % against 45.4 %, -0.6 points [-2.5, +1.3]; with beta 0.5 40.2 %, -5.2 points [-9.8, -0.6]. The
bundled model follows the sum and not the answer that it sees: an explanation is 0.92 nats a token less likely under it
than the task's working (0.75 to 1.09, one model), so that neither property of the paper holds (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.groups import Groups
from posttrain.components.rollouts.explained import Explained
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipe.changes import rl_of, sampling_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (118,)

REQUEST: Final = "#### {answer}\n{question}"
"""For a model that knows no English: ``#### 10\\nQ: 12+5-8+1\\nA:``, the question itself as it always is."""
TEXTS: Final = Critiques(right_revealed="{answer}", wrong_revealed="{answer}", refinement="#### {critique}\n{question}")
"""The same request, for the lesson."""


def expo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a lesson in explaining, explanations beside the groups, each question counts the same."""
    sums = Arithmetic(size=1000, terms=(4, 5))
    recipe = recipe or replace(grpo(), tasks=sums)
    stage = rl_of(recipe)
    lesson = Refinements(of=replace(sums, size=1500, seed=1), texts=TEXTS)
    imitation = sft_of(sft())
    stage = replace(
        stage,
        rollout=Explained(request=REQUEST, sampling=sampling_of(stage)),
        filters={},
        objective=ByOrigin(sampled=stage.objective, weight=0.04),
        reducer=Groups(),
    )
    learner = replace(imitation.learner, optimizer=AdamW(lr=5e-4))
    stages = {"lesson": replace(imitation, tasks=lesson, learner=learner), "rl": stage}
    return replace(recipe, name="expo", stages=stages)
