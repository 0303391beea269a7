r"""RuscaRL: rollouts of a group see from all to none of the criteria of a rubric, which scores them; it decays early.

Source: arXiv:2508.16949, and its released code (IANNXANG/RuscaRL at 18e2b012). Within a group the share of criteria in
the prompt falls from all to none; over training it is multiplied by a sigmoid, in practice a switch at 20 % of the
steps. What is learned is the answer under the bare prompt, with old log-probabilities recomputed there, so that the
ratio is 1 at first. The reward is the points of satisfied criteria, negative ones included, over the positive points.
GRPO with the std, the mean over tokens, clip 0.2, KL 0.001 in the loss.

    posttrain run ruscarl tasks=mine.jsonl model=FOLDER reward.role=judge models.judge.source=http://.../v1
    # columns: prompt, criteria (a list of {"criterion": TEXT, "points": NUMBER}; with "words" where words decide)

Without decay: `rollout.strength=1`; all rollouts with all criteria: `rollout.within=all`; learned under the prompt with
criteria: `rollout.trained=shown`; the true ratio: `old_logp=sampled`.

Differs: the criteria are in the prompt itself, not in a system message, and the bundled model sees the words alone
(`rollout.request`). Draws of criteria are seeded.

Measured here: a table with facts that a group nearly never has by itself (5 seeds, `docs/experiments/scaffolds.py`):
best of eight in the first tenth .638 [.625, .650] with a scaffold and .294 [.292, .297] without; reward of bare prompts
after half of the steps .967 [.956, .979], .332 [.307, .356] without, .983 [.982, .983] without decay, so that the gain
stays after the decay, and the decay itself does not show. All criteria for all rollouts give more at first (.815) and
less for bare prompts after a fifth of the steps (.465 against .758), with less variance in a group, .026 against .036
(docs/experiments.md). One run on the default setting: the reward of a rollout rises from .03 to between .08 and .11 in
40 steps, by longer lists, of which 60 to 76 % are cut in the last third; no held-out list reaches half of its points.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.rollouts.scaffolded import Scaffolded
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.topics import topics

PARENT: Final = "grpo"
SETTING: Final = "topics"
PAPER: Final = "arXiv:2508.16949"
ROWS: Final = (291,)

REQUEST: Final = "{cover}\n{question}"
"""For the bundled model: the words, then the question."""


def ruscarl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: criteria in the prompts of a part of each group, and less of them as training goes on."""
    recipe = grpo(recipe or topics())
    stage = sampled_of(recipe)
    scaffolded = Scaffolded(n=rollouts_of(stage), request=REQUEST, sampling=sampling_of(stage))
    stage = replace(
        stage,
        rollout=scaffolded,
        old_logp="recomputed",
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001)},
    )
    recipe = with_models(replace(recipe, name="ruscarl"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
