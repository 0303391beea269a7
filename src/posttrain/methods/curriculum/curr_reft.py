r"""Curr-ReFT: three stages of RL whose answers are yes or no, letters of options, then open; then SFT on the best.

Source: Deng et al. 2025, arXiv:2503.07065, and its release (ding523/Curr_REFT at f123433e). Each stage of GRPO begins
with the model of the one before it. The reward is 1 for the answer and 1 for the form (thoughts, then the answer, in
tags). Answers with several right options have 1 for all of them and 0.2 for a part; open ones have the overlap of the
stated items with the right ones (Jaccard). Advantages have the std + 1e-4; k3 KL to the model that the stage begins
with, weight 0.04; the mean over each answer's tokens, then over answers; one update per batch. At last the model
answers general questions, a few times each; the best answer is imitated if it has at least 85 of 100 points.

    posttrain run curr_reft tasks=open.jsonl judge.tasks=yes_no.jsonl choice.tasks=letters.jsonl \\
        best.tasks=general.jsonl "models.policy={source: FOLDER, trained: true}"    # columns: image, prompt, answer

With tasks other than the package's shapes all stages have the recipe's reward: `judge.reward.parts.answer={kind:
answer_set, form: yes_no} choice.reward.parts.answer={kind: answer_set, form: letters}`. Boxes as open answers:
`open.reward.parts.answer=boxes`; sums: `...=math_verify`. General questions scored by a judge:
`best.selection.reward={kind: judge, ...} best.selection.at_least=85`.

Differs: the release's stage 2 compares letters in their order and has nothing for a part; its rule for open sums also
rewards empty answers and parts of words (`posttrain.components.rewards.answer_set`). The default setting has names of
squares as open answers. General questions are plain sums there, scored by a rule from 0 to 1, with 0.85 in place of 85.

Measured here (`docs/experiments/answer_forms.py`, five seeds, 120 steps from the same imitated model, 200 held-out
pictures): the overlap of open answers with what there is goes from .452 [.433, .471] after imitation to .639 [.560,
.719], exact answers from 22.7 to 33.0 % (+10.3 points [+0.5, +20.1]). Unlike in the paper, as many steps of open
answers alone reach .880 [.840, .920] and 70.4 % (-37.4 points [-52.1, -22.7]): imitation finds some of the squares in
most pictures, so that 1.5 % of their groups are without spread at first, and stages of other answers take steps from
them. The reverse order ends at .434 [.223, .646], +.205 [-.002, +.412] for the order from closed to open. Plain sums,
which no stage of RL has, fall from 97.0 % to 62.0 %; SFT on the best of eight answers brings 84.0 % back (+22.0 points
[+10.3, +33.7]; the 40 evaluated ones are among its tasks), and leaves open answers at .641. By the released rule, which
also rewards empty answers and parts of words, the reward of open answers comes to 1.975 of 2, and exact answers fall to
12.2 % [-0.3, 24.7].
"""

from dataclasses import replace
from typing import Final, Literal

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards import Reward
from posttrain.components.rewards.answer_set import AnswerSet
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.sum import Sum
from posttrain.components.selections.best import Best
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.shapes import Shapes
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, sampling_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.shape_questions import SUMS, shape_questions
from posttrain.stages.rl import RL

PARENT: Final = "grpo"
SETTING: Final = "shape_questions"
PAPER: Final = "arXiv:2503.07065"
ROWS: Final = (1,)


def curr_reft(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: stages of yes or no, of options and of open answers, then SFT on the best of several."""
    recipe = keep_verifier(grpo(recipe or shape_questions()))
    stage, tasks = rl_of(recipe), recipe.tasks
    own = isinstance(tasks, Shapes)
    stage = replace(
        stage,
        steps=max(1, stage.steps // 3),
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        reducer=Sequences(),
        penalties={**stage.penalties, "kl": KL(coefficient=0.04)},
    )
    stages = {name: other for name, other in recipe.stages.items() if not isinstance(other, RL)}
    stages["judge"] = _stage(stage, AnswerSet(form="yes_no") if own else stage.reward, _asked(tasks, "yes_no"))
    stages["choice"] = _stage(stage, AnswerSet(form="letters") if own else stage.reward, _asked(tasks, "choice"))
    stages["open"] = _stage(stage, stage.reward)
    sampling = sampling_of(stage)
    rule: Reward = Match() if own else stage.reward
    best = Best(reward=rule, at_least=0.85, max_tokens=int(sampling.max_tokens))
    imitation = sft_of(demonstrations())
    stages["best"] = replace(imitation, tasks=SUMS if own else None, selection=best)
    recipe = with_models(replace(recipe, name="curr_reft"), {"reference": Model(source="role:policy")})
    return replace(recipe, stages=stages)


def _stage(stage: RL, rule: Reward, tasks: Tasks | None = None) -> RL:
    """A stage with a rule for its answers, and tasks of its own if they are given."""
    return replace(stage, reward=Sum(parts={"answer": rule, "form": Format()}), tasks=tasks)


def _asked(tasks: Tasks, question: Literal["yes_no", "choice"]) -> Tasks | None:
    """The same pictures with another question; None for tasks of the user, who gives others."""
    return replace(tasks, question=question) if isinstance(tasks, Shapes) else None
