"""Agent Q: DPO on the actions of a tree search, step by step: siblings whose values are far enough apart are pairs.

Source: Putta et al. 2024, arXiv:2408.07199. Each task is searched (`rollouts/step_search`): untried actions first, then
Q + c sqrt(ln N / (1 + N')); the outcome of a rollout is backed up as a running mean; a critic orders the proposals of a
state. The value of an action is alpha Q + (1 - alpha) / (1 + rank) with alpha 0.5. Two actions of one state that were
tried, and whose values differ by more than theta, are a pair for DPO, whose reference is the log-probability that was
logged when the action was proposed: no reference model is held. The search is repeated with the new policy.

    posttrain run agent_q setting=shop world=mine.py:Shop model=FOLDER tasks=tasks.jsonl
    # fields of a row go to the environment, which must repeat

``rollout.search={critic: judge, alpha: 0.5}`` takes another model as the critic, ``critic: policy`` the model itself.
``objective.pairs=extremes`` compares only the best with the worst action of a state.

`CHANGES`: there are several updates per batch.

Differs: the equations are read in notes, not in the paper. The small model of the default cannot be a critic: its
proposals are tried in the order of their likelihood, and alpha is 1. theta 0.2 and beta 0.1 are ours. Held-out tasks
are played without a search.

Measured here, with a table in place of a model on sites of four pages with four spare links (5 rounds of 8 sites, 32
rollouts each, 5 seeds, success 0.23 before): after two and five rounds 0.73 [0.68, 0.79] and 0.94 [0.92, 0.96] with
imitated successes, 0.91 [0.81, 1.00] and 1.00 with DPO on all pairs of whole rollouts. The actions of the search give
0.65 [0.39, 0.92] and 0.83 [0.52, 1.13] by returns alone, 0.87 [0.78, 0.96] and 1.00 with a critic that is right in 70 %
of the cases and alpha 0.5: the search is not ahead of whole rollouts here. With 8 rollouts alpha 0.5 reaches 0.78
[0.60, 0.95], returns alone 0.58 [0.30, 0.86], the critic's order alone 0.77 [0.61, 0.94]. An order by likelihood at
alpha 0.5 makes the policy worse (0.18), hence alpha 1 without a critic (docs/experiments.md).

The small model of the default, one seed: 10 % of 60 held-out sites after imitation, 23 % [14, 35] after 12 steps.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.groups import Groups
from posttrain.components.rollouts.step_search import StepSearch, TreeSettings
from posttrain.components.rollouts.turns import Turns
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, rl_of, several_updates, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.site import site

PARENT: Final = "grpo"
SETTING: Final = "site"
PAPER: Final = "arXiv:2408.07199"
ROWS: Final = (171,)
CHANGES: Final = ("learner.epochs",)


def agent_q(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a search in place of rollouts, and DPO on the actions of each state in place of advantages."""
    recipe = grpo(recipe or site())
    stage = rl_of(recipe)
    own = stage.rollout
    if not isinstance(own, Turns):
        raise UserError(
            f"recipe '{recipe.name}' has the rollout '{own.kind}', and a search over turns needs an environment; apply "
            "agent_q to a recipe whose rollout is 'turns', such as setting=shop, with your own environment"
        )
    search = StepSearch(
        environment=own.environment,
        n=own.n,
        max_turns=own.max_turns,
        search=TreeSettings(alpha=1.0),
        sampling=own.sampling,
        role=own.role,
    )
    stage = replace(
        stage,
        rollout=search,
        filters=every_group(stage),
        objective=Pairwise(loss=DPO(beta=0.1, reference="old"), gap=0.2),
        reducer=Groups(),
        learner=several_updates(stage.learner, epochs=2),
    )
    return with_stage(replace(recipe, name="agent_q"), stage)
