"""OREO: offline RL of policy and value by soft Bellman (path) consistency, with value-guided beam search at test time.

Source: Wang et al. 2024, arXiv:2412.16145, and its released code (github.com/jwhj/OREO): the loss of
`objectives/path_consistency` for both, beta 0.03, the KL over the whole vocabulary with weight 0.01, rewards 1 and 0, a
critic as large as the policy whose head is initialized to 0, the same learning rate for both, one epoch. In each step
the policy's update uses the values from before the critic's update. Held-out tasks are answered by a beam search with
the critic, in addition to greedy decoding (3 beams, 3 lines each, up to 20 lines).

States per line: `rollout.delimiter=";" objective.states=turn critic.states=turn`; per response: `states=sequence` for
both.

`CHANGES`: value-guided search is a part of the method.

Differs: the data is that of `topr_offline`, a correct solution and one with a slip per task. The authors sample the
initial policy. Learning rates are constant, theirs follow a cosine.

Measured here: 30 steps of 16 prompts, five seeds, from 21.2 % held-out accuracy: 84.4 % with greedy decoding, against
82.0 % of `topr_offline` (+2.4 points [-2.9, +7.7]) and 84.4 % of SFT on the correct solutions alone. Search has 64.6 %,
plain samples of the same temperature 58.0 % (+6.6 points [+1.1, +12.1]): the values help, but search stays below greedy
decoding (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.objectives.path_consistency import PathConsistency
from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.search.beam import Beam
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_outcomes import rated_outcomes

PARENT: Final = "topr_offline"
SETTING: Final = "rated_outcomes"
PAPER: Final = "arXiv:2412.16145"
ROWS: Final = (276,)
CHANGES: Final = ("evaluation.search",)


def oreo(recipe: Recipe | None = None) -> Recipe:
    """A change to TOPR offline: path consistency in place of advantages, with a critic that also guides the search."""
    recipe = recipe or rated_outcomes()
    stage, evaluation = rl_of(recipe), recipe.evaluation
    search = Beam(delimiter=";", value_role="critic")
    if evaluation.sampling is not None:
        search = replace(search, sampling=evaluation.sampling)
    roles = {
        "reference": Model(source="role:policy"),
        "critic": Model(source="role:policy", head="value", trained=True),
    }
    stage = replace(
        stage,
        filters=every_group(stage),
        advantage=GAE(lam=1.0, whiten=False),
        objective=PathConsistency(),
        critic=PathConsistency(learns="value"),
        critic_learner=stage.critic_learner if stage.critic else stage.learner,
        penalties={**stage.penalties, "kl": ExactKL(coefficient=0.01, direction="reverse")},
        reducer=Sequences(),
    )
    evaluation = replace(evaluation, search=evaluation.search or search)
    return with_stage(with_models(replace(recipe, name="oreo", evaluation=evaluation), roles), stage)
