"""PAV: PPO with process advantages, how much each step raises the chance of a prover, as immediate credit.

Source: Setlur et al. 2024, "Rewarding Progress", arXiv:2410.08146; the abstract and a technical note were read. A value
model is trained first on the success of continuations after prefixes, which the base model writes
(`stages/value_model` by tree search without a model). The prover is the best of 4 of the base: its value is 1 - (1 -
Q)^4, before a step as after it (`rewards/prover_steps`). alpha times the difference is credit of the step's own tokens
(`advantages/immediate`), beside the advantage of the outcome by a critic, with a KL of 0.001 in the reward.

    posttrain run pav tasks=mine.jsonl model=FOLDER    # columns: prompt, answer; steps end with a line or a semicolon

`rl.reward.k=1` has the base as its own prover, which gives no new direction while the policy is near it.

Differs: the outcome's gradient is PPO's, where the paper has REINFORCE with a value baseline. The buckets of Q that
the data is balanced by, and samples around the first pit, are left out, and so is beam search by the effective reward.
alpha is 1; up to 5 is quoted.

Measured here, exactly known values on a chain of six levels (5 seeds; `docs/experiments/provers.py`; alpha 2): rollouts
until 90 % success 1,859 [1,711, 2,007] by the outcome alone, 618 [568, 667] by the outcome times 3, an update as large
as with process advantages, 445 [428, 461] with the best of 4, 560 [532, 588] with the best of 100, 688 [664, 712] with
the base and 688 [639, 737] with a perfect prover. Summed into returns the best of 4 needs 598 [568, 629]: no
fewer than the outcome times 3.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.immediate import Immediate
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.prover_steps import ProverSteps
from posttrain.components.search.tree import Tree
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.value_model import ValueModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "ppo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2410.08146"
ROWS: Final = (248,)
INHERITED: Final = {"objective": "PPO's clip and several updates; the paper has REINFORCE"}


def pav(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a value model of the base, process advantages of a prover as immediate credit, a smaller KL."""
    recipe = keep_verifier(ppo(recipe or arithmetic()))
    stage = rl_of(recipe)
    values = ValueModelTraining(
        search=Tree(delimiter=";", iterations=6, keep=3, value_role=None, sampling=sampling_of(stage)),
        reward=stage.reward,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=3e-4), epochs=2, minibatches=2),
    )
    changed = replace(
        stage,
        reward=ProverSteps(correct=stage.reward),
        advantage=Immediate(advantage=stage.advantage),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001, form="k1", where="reward")},
    )
    recipe = with_models(
        replace(recipe, name="pav"), {"value": Model(source="role:policy", head="reward", trained=True)}
    )
    return with_stages_before(with_stage(recipe, changed), {"values": values}, changed)
