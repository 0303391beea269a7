"""SELM: rounds of DPO on a fresh greedy response and the data's pair, and whatever the policy writes is pushed away.

Source: Zhang et al. 2024, arXiv:2405.19332, and its released code (github.com/shenao-zhang/SELM). In each round the
policy, as the round began, answers every prompt of a fresh slice greedily; a reward model ranks the answer with the two
completions of the data's pair; the best is preferred to the worst (beta 0.01, one pass). To the loss comes
alpha beta [log pi(answer) - log pi_old(answer)], also where the answer is the best or the middle one, alpha 1e-3.
`penalties.optimism.coefficient` is alpha beta, and with 0 this is DPO in rounds.

    posttrain run selm tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer (to evaluate)

`CHANGES`: a response is learned from once, since the loss pushes it down without bound.

Differs: a round is a step of the rl stage, so that optimizer and schedule go on from round to round, and is not
preceded by one of plain DPO (as in the paper's runs from Llama 3, not in those from Zephyr). The reward model is
trained here on the same preferences, in the place of PairRM. Of equal rewards the answer is taken, as the best and as
the worst, before a completion of the data's.

Measured here: against the same without optimism (5 seeds): the paper's weight changes no held-out accuracy; 300 times
as much makes the third round's greedy answers less likely by 0.0006 nats a token [0.0000, 0.0013] (in 4 of 5 seeds), at
accuracy -0.4 points [-8.9, +8.1] (docs/experiments.md).
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
from posttrain.settings.judged_rounds import judged_rounds

PARENT: Final = "rlhf_workflow"
SETTING: Final = "judged_rounds"
PAPER: Final = "arXiv:2405.19332"
ROWS: Final = (203,)
# Each prompt gets one greedy answer, which a reward model ranks among the given pair; one pass over each batch.
CHANGES: Final = ("learner.epochs", "reward", "rollout.n", "rollout.sampling.temperature")


def selm(recipe: Recipe | None = None) -> Recipe:
    """A change to RLHF Workflow: one greedy response and the data's pair in the place of samples; optimism."""
    recipe = rlhf_workflow(recipe or judged_rounds())
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
