"""eva: a creator rewrites the prompts that are most informative for the solver, which learns by DPO of best and worst.

Source: Ye et al. 2024, arXiv:2411.00062, and its released code (ZIYU-DEEP/eva at d605e6f). In each round 6 responses of
a prompt are scored. The gap of their rewards is its informativeness; a quarter of the prompts is drawn by min-max
weights, each is rewritten four times in a chain, and the next prompts are 20 % old and 80 % written ones. The solver
goes on from its weights: DPO with the best and the worst response, beta 0.05, against the policy before the round.

    posttrain run eva tasks=mine.jsonl model=FOLDER curriculum.role=creator models.creator.source=http://.../v1
    # columns: prompt, answer (for a reward that compares; written tasks then come with an answer of the creator)

With a reward model: `reward.kind=reward_model models.reward.source=FOLDER`. Other informativeness:
`curriculum.informativeness=regret`, `second`, `variance`, `mean`, `hard`, `none` (uniform). Without a creator a rule
rewrites sums. A round ends when all tasks of the set have been taken.

Differs: the online variant with RLOO is not in the release and could not be read; `curriculum.kind=evolved` goes on any
method, such as `posttrain run rloo curriculum.kind=evolved`. Informativeness is that of the training rollouts. The
reference is the policy at the start of a step. Rounds are those of the curriculum, within one stage with one optimizer.

Measured here with a simulated learner (docs/experiments/frontier.py), over five seeds: after 29 rounds, tasks drawn by
the gap have 8.7 numbers where the learner solves sums of 9.4 half of the time; with uniform draws 11.2 and 7.0, and
without rewriting 2.5 and 6.0. Success at 8 numbers is 84 % against 24 % and 8 %. Unlike in the paper, draws by variance
are as good as those by regret. One run on the default setting: 10.0 % of 200 held-out sums of four and five numbers
before, 33.0 % after 20 steps from sums of two and three.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.evolved import Evolved
from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.growing_sums import growing_sums

PARENT: Final = "grpo"
SETTING: Final = "growing_sums"
PAPER: Final = "arXiv:2411.00062"
ROWS: Final = (106,)


def eva(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: informative tasks are rewritten, and the best and the worst rollout are a pair for DPO."""
    recipe = with_rl(recipe or growing_sums())
    stage = rl_of(recipe)
    stage = replace(
        stage,
        curriculum=Evolved(),
        filters={**every_group(stage), "best_and_worst": BestAndWorst()},
        objective=Pairwise(loss=DPO(beta=0.05, reference="old")),
        reducer=Sequences(),
    )
    return with_stage(replace(recipe, name="eva"), stage)
