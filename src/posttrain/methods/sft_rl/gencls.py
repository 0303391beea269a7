"""GenCLS++: classification by writing labels, SFT and then RL, with strategies of prompts for training and inference.

Source: He et al. 2025, arXiv:2504.19898, of which only the abstract and the titles of sections were read, so that
details are choices of this package. A prompt is made by a strategy: examples, definitions of the classes, a label for
uncertainty, numbers without meaning as labels; training and inference have strategies of their own. SFT on the labels
is followed by GRPO with a reward of 1 for the correct label, also where it is a number, and 0 for any other text.
Held-out texts are classified by writing (greedy), and by the label with the smallest perplexity, end token included.

`tasks.training=[{numbers: true}]` trains with numbers; `tasks.asked={definitions: true, numbers: true}` evaluates with
another strategy; `tasks.pool=32 'tasks.training=[{examples: nearest}]'` shows examples; `'tasks.training=[{working:
true}]'` writes a working line first, which the paper found no better.

    posttrain run gencls tasks.tasks=mine.jsonl    # columns: prompt (the text), answer (the label)

`CHANGES`: the tasks are the same texts, put as classifications; the likeliest label is a way of inference.

Differs: the form of the reasoning variant has no reward of its own.

Measured here: patterns of letters, 5 seeds, written labels and likeliest ones: after SFT 60.8 and 60.6 % with names,
65.9 and 65.9 % with numbers; after 40 steps of RL 60.1 and 60.1 %, 64.3 and 64.3 %; with a working line and RL 63.9 %
written. No difference among these that five seeds can show: RL adds nothing, numbers are no worse, and a working line
is no better. After SFT every written answer is a label, so that the likeliest label has nothing to repair
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.label import Label
from posttrain.components.tasks.classes import Classes
from posttrain.components.tasks.patterns import DEFINITIONS
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.patterns_of_letters import patterns_of_letters

PARENT: Final = "grpo"
SETTING: Final = "patterns_of_letters"
PAPER: Final = "arXiv:2504.19898"
ROWS: Final = (298,)
CHANGES: Final = ("tasks", "reward", "evaluation.candidates")


def gencls(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: prompts by strategy, SFT first, a reward for the label, and the likeliest label."""
    recipe = with_imitation(grpo(recipe or patterns_of_letters()))
    stage = replace(rl_of(recipe), reward=Label(extract=("last_line",)))
    recipe = replace(
        recipe,
        name="gencls",
        tasks=Classes(tasks=recipe.tasks, definitions=DEFINITIONS),
        evaluation=replace(recipe.evaluation, candidates="token"),
    )
    return with_stage(recipe, stage)
