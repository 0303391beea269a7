"""IRCoCo: each token of a recorded completion is rewarded with what it adds to the output of an evaluator.

Source: arXiv:2401.16637 and its release (Libolun-star/IRCoCo at 17199313). A value model learns how similar ten greedy
tokens after a prefix will be to the true ones (`stages/value_model`, `search/continuations`). The completions are those
of the model before reinforcement, greedy and written once (`selections/completed`). The loss is -log p(y_t) r_t with
the increment r_t of the evaluator at that token (`rewards/increments`), without a baseline, returns, a clip or a KL,
over all tokens. Beside it the true endings are imitated, with half of the loss.

`CHANGES`: completions are recorded ones, so that the rollout samples nothing.

    posttrain run ircoco tasks=mine.jsonl model=FOLDER    # columns: prompt, answer (the true ending), completion (same)
    posttrain run ircoco rl.experts=null rl.balance=null  # as released

Differs: the release has the imitation commented out; without it log-probabilities of tokens with a negative increment
fall without bound. The evaluator is a copy of the policy, not a small model of its own, and
its prefixes are cut anew in each step. Its scores are edit similarities; those by BLEU are `rl.reward.correct` and
`values.reward`. Rates and steps are the setting's.

Measured here over five seeds (`docs/experiments/completion_credit.py`): the edit similarity of greedy completions is
70.7 % [66.3, 75.0] after imitation of partly wrong endings. After 60 steps it is 11.9 [-0.5, 24.2] with increments
alone, which fall from the first steps on (47.7 [37.5, 58.0] after 20); 70.5 [66.1, 75.0] with the whole score on all
tokens; and 79.1 [77.9, 80.3] with increments beside imitation, as with that imitation alone (79.2 [77.8, 80.6]):
increments add nothing here, and need imitation to do no harm. The evaluator's squared error on other lines is 0.053
[0.040, 0.066], the variance of their scores 0.084 [0.077, 0.091].

In the default run 30, 30.5, 37.5, 34.5 and 36 % of 200 held-out endings are right before these steps, and 42, 37.5,
42.5, 42.5 and 44.5 % after 40 (five seeds; each within 7 points, 95 %). By the sum of increments "Let's solve this
problem step by step." outranks 13 of 16 true endings: the setting's audit
only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.advantages.immediate import Immediate
from posttrain.components.balances.fixed import Fixed
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.by_origin import ByOrigin as ByOriginReducer
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.increments import Increments
from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.search.continuations import Continuations
from posttrain.components.selections.completed import Completed
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    keep_verifier,
    rl_of,
    sampling_of,
    with_models,
    with_stage,
    with_stages_before,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.code_lines import code_lines
from posttrain.stages.value_model import ValueModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "code_lines"
PAPER: Final = "arXiv:2401.16637"
ROWS: Final = (100,)
CHANGES: Final = ("rollout.sampling",)


def ircoco(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: recorded completions, increments of an evaluator as credit of tokens, imitation beside it."""
    recipe = keep_verifier(with_rl(recipe or code_lines()))
    stage = rl_of(recipe)
    correct = stage.reward.correct if isinstance(stage.reward, Increments) else stage.reward
    values = ValueModelTraining(
        search=Continuations(),
        reward=correct,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        steps=60,
    )
    changed = replace(
        stage,
        selection=Completed(reward=correct, sampling=replace(sampling_of(stage), temperature=0.0)),
        rollout=Recorded(),
        reward=Increments(correct=correct),
        filters=every_group(stage),
        advantage=Immediate(advantage=FixedBaseline()),
        objective=ByOrigin(sampled=PolicyGradient()),
        reducer=ByOriginReducer(sampled=Tokens(), demonstrated=Tokens()),
        experts=Stream(batch=max(stage.prompts, 1)),
        balance=Fixed(mu=0.5),
    )
    models = {
        "behavior": Model(source="role:policy"),
        "value": Model(source="role:policy", head="reward", trained=True),
    }
    recipe = with_models(replace(recipe, name="ircoco"), models)
    return with_stages_before(with_stage(recipe, changed), {"values": values}, changed)
