r"""ThinkLite-VL: GRPO on the tasks that a tree search of the policy solves late, or not at all.

Source: Wang et al. 2025, arXiv:2504.07934, section 3.2, and its released code (si0wang/ThinkLite-VL at 37fb148). Before
training each task is searched with three next steps an expansion and at most 50 visits; tasks with K above 5 and those
never solved are kept, 11,000 of 70,000 in the paper. Then plain GRPO: the mean over the tokens of each rollout, KL to
the initial policy, every group. The search counts visits only; it is done once, by the initial policy.

    posttrain run thinklite tasks=mine.jsonl model=FOLDER 'selection.delimiter="\n"'    # columns: prompt, answer

A band of success rates in its place: `selection={kind: by_level, reward: match, k: 8, levels: [5, 6, 7, 8]}`; solved
tasks only: `selection.unsolved=false`. Questions with options are rewritten to open ones first, since a guess makes K
small. Images: columns image, prompt, answer.

Differs: the bundled model ends its steps with a semicolon; two worked examples in the prompt are the setting's matter.
The number of rollouts is the setting's (32 in the paper).

Measured here: toy trees have K = 2, 5, 11, 23 and 47 for the five depths of the first other action. A simulated learner
(5 seeds, `docs/experiments/phases.py`): accuracy on the harder half after 60 steps .318 [.256, .380] on what is kept
here, of which two in five are unsolved, .443 [.389, .497] on as many random tasks, .584 [.543, .624] on solved ones
with K above 5, .567 [.551, .584] on those with a success rate up to a half. So with a weak base the unsolved ones cost
the gain, as the sheet expects, and visits select as a band of success rates does (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.selections.by_visits import ByVisits
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2504.07934"
ROWS: Final = (50,)

DELIMITER: Final = ";"
"""What ends a step of the bundled model's solutions."""


def thinklite(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: tasks are selected once by the visits that a search needs to solve them."""
    recipe = grpo(recipe or uneven_sums())
    stage = rl_of(recipe)
    steps = replace(ByVisits(reward=stage.reward).sampling, max_tokens=int(sampling_of(stage).max_tokens))
    stage = replace(
        stage,
        selection=ByVisits(reward=stage.reward, delimiter=DELIMITER, sampling=steps),
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL()},
        reducer=Sequences(),
    )
    recipe = with_models(replace(recipe, name="thinklite"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
