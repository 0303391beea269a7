"""Kimi k1.5, long to short: after reinforcement, DPO of the shortest right answer against longer ones.

Source: Kimi Team 2025, arXiv:2501.12599, section 2.4: of eight rollouts of a task, the shortest right one is preferred
to longer ones, both wrong ones and right ones that are at least 1.5 times as long. The three other ways of the report:
averaging with a short model is `posttrain merge`, imitation of the shortest right answers is `posttrain generate RUN
--as shortest` with `sft`, and a second phase of reinforcement with the length reward and a lower limit is `kimi_k1_5
model=RUN rollout.sampling.max_tokens=N reward.begin=0`.

    posttrain run kimi_long2short tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

Differs: beta and the learning rate of DPO are not in the report; they are those of `dpo`, at a tenth of its rate.
Incorrect rollouts have to be 1.5 times as long too.

Measured here: five seeds of `rl.steps=20`, after which 55 to 88 of 500 tasks give pairs (after 100 steps, one seed, 11:
nearly all answers then work the sum out, and are of one length). One epoch at the default rate changes nothing: 78.5 %
of held-out sums and 32.5 tokens, where Kimi k1.5 has 78.8 % and 32.5. Eight epochs at 1e-4 shorten the answers of three
seeds, which answer worse with less work: 51.4 % and 25.0 tokens on average, -27.4 points [-71.1, +16.3] and -7.5 tokens
[-24.0, +9.1] (docs/experiments.md). Merges of a long and a short model are `docs/experiments/long_to_short.py`.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.selections.sampled import Sampled
from posttrain.methods.policy_gradient.kimi_k1_5 import kimi_k1_5
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sampling_of, with_models, with_stages_after
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.preference import PreferenceTraining
from posttrain.training.settings import Learning

PARENT: Final = "kimi_k1_5"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2501.12599"
ROWS: Final = (236,)


def kimi_long2short(recipe: Recipe | None = None) -> Recipe:
    """A change to Kimi k1.5: a stage of DPO on its own short and long answers."""
    recipe = kimi_k1_5(recipe or arithmetic())
    stage = rl_of(recipe)
    selection = Sampled(
        reward=recipe.evaluation.verifier or Match(),
        use="shortest",
        n=8,
        most=4,
        max_tokens=sampling_of(stage).max_tokens,
        first=500,
    )
    shortened = PreferenceTraining(
        loss=DPO(), reducer=Sequences(), learner=Learning(optimizer=AdamW(lr=3e-5)), selection=selection
    )
    recipe = with_models(replace(recipe, name="kimi_long2short"), {"reference": Model(source="role:policy")})
    return with_stages_after(recipe, {"shortened": shortened}, stage)
