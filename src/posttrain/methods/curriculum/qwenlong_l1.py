r"""QwenLong-L1: a warm-up and two phases of RL on prompts of growing length; short tasks that were never solved return.

Source: Wan et al. 2025, arXiv:2505.17667, sections 3.1 to 3.3. SFT and phase I are on prompts of at most L1 tokens,
phase II on those of more than L1 and at most L2 (20,000 and 60,000), and on the tasks of phase I whose rollouts by the
base model all failed. GRPO with the mean over the tokens of each rollout, no KL. The reward is max(rule, judge): the
judge is asked where the rule gives less than 1.

    posttrain run qwenlong_l1 tasks=mine.jsonl model=FOLDER sft.selection.longest=20000 phase_1.selection.longest=20000
    \\
        phase_2.selection.above=20000 phase_2.selection.longest=60000    # columns: prompt, answer, completion
    # with a judge, in both phases:
    phase_1.reward.parts.judge='{kind: judge, label: "", verdicts: {yes: 1, no: 0}}' models.judge.source=http://.../v1

The paper's other variant is DAPO: `phase_1.filters={zero_variance: zero_variance} phase_1.reducer=tokens`. No task
returns with `phase_2.selection.again=false`. The rule is the setting's: `match` compares whole answers, so that a text
that is empty or a part of the answer scores 0; the release accepts either as a substring.

Differs: lengths are those of the bundled model's sums, 14 and 40 tokens. The base model is the recipe's initial one.
Without a judge in the recipe the rule is the only part of the reward: a model of this size cannot judge. The optimizer
begins anew in each phase, which the paper does not state; `phase_2.learner.carried=true` goes on with its moments. The
release has neither phases nor returning tasks.

Measured here: a simulated learner at equal tokens, long tasks costing three times as many
(`docs/experiments/phases.py`, 5 seeds): accuracy on long tasks .955 [.950, .961] in phases, .954 [.949, .960] where
unsolved ones return, .953 [.949, .957] on long tasks alone, .956 [.950, .963] on all; after half of the tokens .802,
.812, .804 and .826. On short ones .983, .987 [.986, .987], .769 and .971. So phases keep short tasks, and lead to long
ones no sooner (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.highest import Highest
from posttrain.components.selections.by_length import ByLength
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, sampling_of, sft_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums
from posttrain.stages.rl import RL

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2505.17667"
ROWS: Final = (316,)

SHORT, LONG = 14, 40
"""L1 and L2 of the bundled model's sums, in tokens."""


def qwenlong_l1(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: imitation and a first phase on short prompts, a second one on long ones."""
    recipe = with_imitation(grpo(recipe or uneven_sums()))
    stage = rl_of(recipe)
    rule, tokens = stage.reward, int(sampling_of(stage).max_tokens)
    recipe = with_models(keep_verifier(recipe), {"base": Model(source=recipe.models["policy"].source)})
    short = ByLength(reward=rule, longest=SHORT, max_tokens=tokens)
    long = replace(short, above=SHORT, longest=LONG)
    recipe = with_stage(recipe, replace(sft_of(recipe), selection=short))
    stage = replace(
        stage,
        filters=every_group(stage),
        reducer=Sequences(),
        reward=rule if isinstance(rule, Highest) else Highest(parts={"rule": rule}),
    )
    stages = {name: other for name, other in recipe.stages.items() if not isinstance(other, RL)}
    first = max(1, stage.steps // 2)
    stages["phase_1"] = replace(stage, steps=first, selection=short)
    stages["phase_2"] = replace(stage, steps=max(1, stage.steps - first), selection=long)
    return replace(recipe, name="qwenlong_l1", stages=stages)
