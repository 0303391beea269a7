"""FunRL: GRPO for function calls, with a bonus for the entropy of the thoughts, and none for that of the calls.

Source: "Exploring Superior Function Calls via Reinforcement Learning", arXiv:2508.05118 (v4 names it EGPO). The reward
is 1 only if format and calls are both right: `rewards/gated` and `rewards/calls`, which the default setting has. Tasks
are selected by the validity of their reference calls (`selections/valid_calls`; with a judge, `selection.judge=ROLE`).

    posttrain run funrl setting=tool_calls tasks=mine.jsonl model=FOLDER   # columns: prompt, completion, answer, tools
    # answer: f(a=1, b="x"), or {"name": "f", "arguments": {...}}, or [{"f": {"a": [1, 2]}}] with allowed values;
    # completion, which is imitated first: <think>why</think><call>f(a=1, b="x")</call>

A completion has the form ``<think>...</think><call>...</call>``. With `advantage.weight=0` it is GRPO to the bit.

Differs: the formula of the bonus is not published: the one here is assumed, with its weight and bound
(`advantages/span_entropy`). The bonus is for the tokens of the thoughts; `advantage.where=rollout` gives it to all.
The KL to a reference is a term of GRPO there; here as in `grpo` there is none.

Measured here: against GRPO (three epochs of imitation, 30 steps, 5 seeds): held-out requests 10.2 % against 9.8 %, +0.4
points [-7.4, +8.2], where 1 in 16 is right by chance: no difference that five seeds can show (docs/experiments.md).
With 60 steps, one seed only: 10.0 % after imitation and 33.5 % at the end.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.span_entropy import SpanEntropy
from posttrain.components.selections.valid_calls import ValidCalls
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.tool_calls import tool_calls

PARENT: Final = "grpo"
SETTING: Final = "tool_calls"
PAPER: Final = "arXiv:2508.05118"
ROWS: Final = (84,)


def funrl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: an entropy bonus on thoughts only, and tasks whose reference calls are valid."""
    recipe = grpo(recipe or tool_calls())
    stage = rl_of(recipe)
    stage = replace(stage, advantage=SpanEntropy(advantage=stage.advantage), selection=ValidCalls())
    return with_stage(replace(recipe, name="funrl"), stage)
