"""RISE: imitation of each turn of a dialogue of retries, with weights exp(r / tau): answers improve from turn to turn.

Source: Recursive Introspection, Qu et al. 2024, arXiv:2407.18219, and its release (cmu-mind/RISE at 4a2806e). The
policy answers; after the reply that the answer is wrong it answers again 16 times, of which the first best one is kept,
up to the first correct answer (`rollouts/retried`). Every turn is a target after all before it, with the weight
exp(r / 0.4); r is 1 for a correct answer, 0 for a wrong one and -1 where none can be read. The loss is the mean over
targets of the weight times the mean cross-entropy of its tokens: weights are neither centred nor normalized. Dialogues
have two turns in the first iteration and five in the last.

    posttrain run rise tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

The filters `improved` (criteria ``better`` and ``best``) and `outcome` (its ``success``) leave turns out
of the targets; the default is ``all`` of the release's example. ``rollout.improver_role=teacher`` distils a model.
Held-out tasks are answered without an oracle; ``evaluation.rollout.result=vote`` takes the majority over turns.

`CHANGES`: the reward has three levels.

Differs: an iteration goes on from the weights of the one before. Learning rate, batch and schedule are the setting's.

Measured here, on boxes that the prompt names, after imitation of random answers (40 steps, 5 seeds, 200 new prompts,
sampled, every answer called wrong): 100 % [99, 100] are right at turn 1, 69 % [51, 86] at turn 5, after 20 steps 82 %
[74, 90] and 32 % [14, 49]; imitation of first turns alone, which samples fewer answers, 59 % [41, 78] and 35 % [13,
57]. Later turns are not above the first here: in training the next target is hardly ever the answer that was called
wrong, and a right one that is called wrong is changed as well. With an oracle 100 % are right in one of five turns; the
vote of five turns has 97 % [88, 106], that of five first answers 100 % (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.exp_reward import ExpReward
from posttrain.components.filters.ranked import Ranked
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.levels import Levels
from posttrain.components.rollouts.retried import Retried
from posttrain.methods.sampling.raft import raft
from posttrain.recipes.changes import keep_verifier, rl_of, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.retried_guesses import retried_guesses

PARENT: Final = "raft"
SETTING: Final = "retried_guesses"
PAPER: Final = "arXiv:2407.18219"
ROWS: Final = (178,)


def rise(recipe: Recipe | None = None) -> Recipe:
    """A change to RAFT: dialogues of retries, each turn of which is imitated with an exponential weight."""
    recipe = recipe or retried_guesses()
    sampled_of(recipe)
    recipe = keep_verifier(raft(recipe))
    stage, asked = rl_of(recipe), recipe.evaluation.rollout
    rollout = Retried(n=rollouts_of(stage), sampling=sampling_of(stage))
    if isinstance(asked, Retried):
        rollout = replace(rollout, feedback=asked.feedback, turns=asked.turns)
    stage = replace(
        stage,
        rollout=rollout,
        reward=Levels(correct=stage.reward, unreadable=-1.0, wrong=0.0, right=1.0),
        filters={name: part for name, part in stage.filters.items() if not isinstance(part, Ranked)},
        advantage=ExpReward(),
        objective=PolicyGradient(),
        reducer=Sequences(),
    )
    return with_stage(replace(recipe, name="rise"), stage)
