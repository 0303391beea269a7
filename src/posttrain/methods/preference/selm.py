"""SELM: online iterative DPO with an optimism term for active exploration.

Source: Zhang et al. 2024, arXiv:2405.19332, and its released code (github.com/shenao-zhang/SELM). In each round the
policy at the start of the round answers every prompt of a new slice greedily. A reward model ranks the answer with the
two completions of the data's pair; the best is preferred to the worst (beta 0.01, one epoch). The term alpha beta [log
pi(answer) - log pi_old(answer)] is added to the loss, also where the answer is the best or the middle one, alpha 1e-3.
`penalties.optimism.coefficient` is alpha beta, and with 0 this is DPO in rounds.

    posttrain run selm tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer (to evaluate)

`CHANGES`: one epoch per batch, since the loss decreases a response's likelihood without bound.

Differs: a round is a step of the rl stage, so that optimizer and schedule continue between rounds, and no round of
plain DPO precedes it (as in the paper's runs from Llama 3, not in those from Zephyr). The reward model is trained here
on the same preferences, in place of PairRM. Ties are resolved in favor of the answer, as the best and as the worst,
over the data's completions.

Measured here: against the same without optimism (5 seeds): the paper's weight does not change held-out accuracy; 300
times that weight lowers the log-likelihood of the third round's greedy answers by 0.0006 nats per token [0.0000,
0.0013] (in 4 of 5 seeds), at accuracy -0.4 points [-8.9, +8.1] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.penalties.optimism import Optimism
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rollouts.demonstrated import Demonstrated
from posttrain.methods.preference.rlhf_workflow import rlhf_workflow
from posttrain.recipes.changes import sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_rounds import reward_model_rounds

PARENT: Final = "rlhf_workflow"
SETTING: Final = "reward_model_rounds"
PAPER: Final = "arXiv:2405.19332"
ROWS: Final = (203,)
# One greedy answer per prompt, ranked with the data's pair by a reward model; one epoch per batch.
CHANGES: Final = ("learner.epochs", "reward", "rollout.n", "rollout.sampling.temperature")


def selm(recipe: Recipe | None = None) -> Recipe:
    """A change to RLHF Workflow: one greedy response and the data's pair in place of samples; an optimism term."""
    recipe = rlhf_workflow(recipe or reward_model_rounds())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Demonstrated(
            n=1, demonstrations=2, shown="preferences", sampling=replace(sampling_of(stage), temperature=0.0)
        ),
        filters={name: part for name, part in stage.filters.items() if not isinstance(part, BestAndWorst)},
        objective=Pairwise(loss=DPO(beta=0.01, reference="old"), pairs="extremes"),
        penalties={**stage.penalties, "optimism": Optimism(role="old")},
        learner=replace(stage.learner, epochs=1),
    )
    return with_stage(replace(recipe, name="selm"), stage)
