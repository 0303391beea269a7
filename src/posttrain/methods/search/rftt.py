"""RFTT: tree search over tagged steps, whose right paths are imitated and whose paths are then learned from by RL.

Source: Reinforced Functional Token Tuning, Zhang et al. 2025, arXiv:2502.13389, and its release (github.com/sastpg/RFTT
at 948f89ee). A grammar states which kinds of steps may follow which (`search/functions`). The right paths of a search,
those with a repaired step among them, become demonstrations; equal paths count once. Then each rollout of REINFORCE++
is a path of the same search by the policy itself, with a reward at the end of every step from a process model
(`penalties/step_scores`). Held-out tasks are answered greedily, and by the search with the process model.

    posttrain run rftt tasks.tasks=mine.jsonl     # columns: prompt, answer, completion (steps; more steps #### answer)
    posttrain eval RUN --search '{kind: functions, votes: true, rollouts: 16}'

A model that follows instructions needs no warm-up on the tags: `paths.selection.search.grammar.prompts={step: ...}`
requests each step by the prompt of its kind.

`CHANGES`: search is a part of the method.

Differs: the process model is learned here from searches by the imitating policy; the release has an external one. Tags
are text of the tokenizer, as in the release; the paper describes new tokens. The grammar is that of the default setting
(`tasks/tagged_steps`), and that of the release is the default of the search. 8 rollouts where the paper has 16, and
tens of updates. Kinds of steps whose tag has a probability below 0.02 are no children.

Measured here: sums of three numbers, 12 steps of RL (5 seeds). Held-out accuracy 49.2 % after the warm-up, 55.0 % after
imitating about 50 right paths, +5.8 points [1.8, 9.8], and 52.4 % after RL on searched rollouts, against 54.4 % on
plain ones, -2.0 points [-7.3, +3.3], from 57 % fewer sampled tokens: RL shows no gain at this size. Rollouts have 0.51
checks against 0.12, +0.39 [+0.22, +0.55], and hardly a repair, 0.03 against 0.01. One seed with `least` 0 in place of
0.02, 20 steps: 53 % before RL and 18 % after it: tags that only the search chooses are learned from, and the policy
loses its opening tags. Answers by the search of the trained models: 31.2 % with one rollout, 26.8 % with 16 by the
process model, -4.4 points [-7.5, -1.3], and 31.4 % by votes; greedy ones 52.4 %. Steps are sampled at temperature 1,
16 rollouts are 3.7 different paths, and ten updates make no good process model (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.step_scores import StepScores
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rollouts.searched import Searched
from posttrain.components.search.functions import Functions
from posttrain.components.selections.paths import Paths
from posttrain.components.tasks.tagged_steps import GRAMMAR
from posttrain.methods.policy_gradient.reinforce_plus_plus import reinforce_plus_plus
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import (
    keep_verifier,
    rollouts_of,
    sampled_of,
    sampling_of,
    sft_of,
    with_models,
    with_stage,
    with_stages_before,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.functional_sums import functional_sums
from posttrain.stages.value_model import ValueModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "reinforce_plus_plus"
SETTING: Final = "functional_sums"
PAPER: Final = "arXiv:2502.13389"
ROWS: Final = (306,)
CHANGES: Final = ("evaluation.search",)


def rftt(recipe: Recipe | None = None) -> Recipe:
    """A change to REINFORCE++: imitation of searched paths, a process model, rollouts by search, rewards of steps."""
    recipe = keep_verifier(with_imitation(reinforce_plus_plus(recipe or functional_sums())))
    stage = sampled_of(recipe)
    search = Functions(rollouts=rollouts_of(stage), grammar=GRAMMAR, least=0.02, sampling=sampling_of(stage))
    paths = Paths(search=search, reward=stage.reward, first=200, prefer=("fix",))
    process = ValueModelTraining(
        search=search,
        reward=stage.reward,
        reducer=Sequences(),
        role="process",
        steps=10,
        batch=8,
        learner=Learning(optimizer=AdamW(lr=3e-4), epochs=2, minibatches=2),
    )
    learner = replace(sft_of(recipe).learner, optimizer=stage.learner.optimizer)
    imitation = replace(sft_of(recipe), selection=paths, epochs=4.0, max_steps=None, learner=learner)
    changed = replace(
        stage,
        rollout=Searched(search=search),
        penalties={**stage.penalties, "steps": StepScores(grammar=GRAMMAR)},
    )
    recipe = with_models(recipe, {"process": Model(source="role:policy", head="reward", trained=True)})
    recipe = with_stage(replace(recipe, name="rftt"), changed)
    recipe = with_stages_before(recipe, {"paths": imitation, "process": process}, changed)
    answering = replace(search, value_role="process")
    return replace(recipe, evaluation=replace(recipe.evaluation, search=recipe.evaluation.search or answering))
