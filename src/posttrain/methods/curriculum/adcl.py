"""ADCL and EGSR: tasks from easy to hard, sorted anew batch by batch, and rewritten solutions where a group fails.

Source: Zhang et al. 2025, arXiv:2505.08364. ADCL (by a review): batches by the difficulty at the start, each sorted by
the present difficulty when it begins. EGSR (its formulas could not be read, see `posttrain.components.rollouts.
rewritten`): where all rollouts fail, the policy rewrites the expert's solution, and a correct rewriting takes the place
of a failure; it is learned from under the bare prompt. The ratio is 1 at the first update, or the true one of its
sampling with `rollout.ratio=true`.

    posttrain run adcl tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer, completion (the expert's solution)

ADCL alone: `posttrain run grpo curriculum.kind=resorted`. Without sorting anew: `curriculum.resort=false`.

Differs: batches, rollouts of a measurement, and everything about EGSR but its idea, are our choice. The prompt for a
rewriting is that of the setting's warm-up, which shows the bundled model the answer alone; for other models set
`rollout.request`. All batches are of one stage with one optimizer.

Measured here: two simulated skills, one pass over 512 tasks in eight batches (`posttrain diagnose curriculum`, 40
seeds): accuracy at the end .547 (standard error .003) with sorting anew, .545 (.003) without, .502 (.003) for tasks in
any order; where each skill takes from the other .385 (.003), .385 (.003) and .377 (.003). So easy to hard helps, and
sorting anew does not show, for more rollouts. EGSR on a table (20 seeds): half of the answers are correct at a
divergence of 2.35 nats [2.30, 2.40] from the start with own wordings in place of failures, 4.10 [4.03, 4.17] with the
expert's, and 4.47 with SFT on it (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.resorted import Resorted
from posttrain.components.rollouts.rewritten import Rewritten
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums

PARENT: Final = "grpo"
SETTING: Final = "explained_sums"
PAPER: Final = "arXiv:2505.08364"
ROWS: Final = (285,)

REQUEST: Final = "#### {answer}\n{question}"
"""The prompt of the warm-up in the setting `explained_sums`: the answer, then the question as usual."""


def adcl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: tasks by difficulty, and the policy's own wording of solutions that it does not find."""
    recipe = grpo(recipe or explained_sums())
    stage = sampled_of(recipe)
    rewritten = Rewritten(n=rollouts_of(stage), request=REQUEST, sampling=sampling_of(stage))
    stage = replace(rl_of(recipe), curriculum=Resorted(), rollout=rewritten)
    return with_stage(replace(recipe, name="adcl"), stage)
