"""Tool-Star: GRPO with two tools in one answer, a scale of rewards for questions and another one for mathematics.

Source: arXiv:2505.16410, and its released code: questions have token F1, -1 for a broken format, and +0.1 if a search
and a program are both used; mathematics has 0, 0.1 and 1 without a bonus. 3 calls, the fourth ends the rollout; results
are not trained. Groups of 8, no KL, 2 epochs. Imitation of worked examples comes first, as in the setting.

    posttrain run tool_star setting=two_tools model=FOLDER tasks=mine.jsonl
    # columns: prompt, answer, domain (questions or maths), facts ({"kiwi": 47}, what the search has)

``reward.parts.questions.bonus_for=text`` is the release's test of use, closing tags anywhere in the text.

`CHANGES`: there are several epochs.

Differs: the bonus is for executed calls, and a checker that fails is an error. The optional stage of preferences
between own rollouts, which the release finds hardly needed, is left out; so are the tools of inference. Search and
program are a table and an expression.

Measured here, with a table in place of a model (60 steps, 5 seeds), on questions half of which need no addition:
executed programs per question 1.04 [1.00, 1.08] with the bonus, 0.54 [0.52, 0.55] without, at 97 % and 98 % right and
2.2 and 1.6 calls. The release's test gives the same, 1.03 [0.96, 1.10], where typed tags are rare. Where the closing
tag is typed more often than the program is called, five seeds are too noisy to tell: 0.35 [0.02, 0.68] executed
programs with the bonus for calls, 0.13 [-0.13, 0.39] with that for tags, 67 % and 60 % right (docs/experiments.md).

With the small model of the default, one seed: the mean reward rises from 0.14 to 0.47 in 40 steps; of 60 held-out
questions 78 % are right after imitation, 82 % at the end. After twice the imitation all are right before and after.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.two_tools import TwoTools
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.tool_use import ToolUse
from posttrain.components.rollouts.turns import Turns
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, rollouts_of, sampling_of, several_updates, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_tools import two_tools

PARENT: Final = "grpo"
SETTING: Final = "two_tools"
PAPER: Final = "arXiv:2505.16410"
ROWS: Final = (265,)
CHANGES: Final = ("learner.epochs",)


def tool_star(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rewards by kind of task, with a bonus for the use of both tools in questions."""
    recipe = keep_verifier(grpo(recipe or two_tools()))
    stage = rl_of(recipe)
    rollout = stage.rollout
    if not isinstance(rollout, Turns):
        rollout = Turns(environment=TwoTools(), n=rollouts_of(stage), max_turns=4, sampling=sampling_of(stage))
    questions, maths = ToolUse(scale="questions"), ToolUse(scale="maths")
    stage = replace(
        stage,
        rollout=rollout,
        reward=Routed(parts={"questions": questions, "maths": maths}, other=questions),
        learner=several_updates(stage.learner, epochs=2),
    )
    return with_stage(replace(recipe, name="tool_star"), stage)
