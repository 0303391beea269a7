"""AceReason-Nemotron 1.1: imitation, then GRPO in stages of growing length at a temperature chosen for its entropy.

Source: arXiv:2506.13284, sections 3 and 4: SFT for 5 epochs; then strictly on-policy GRPO (one update a step, the mean
over tokens, no KL) in stages with limits of 8k, 16k and 32k tokens. In the first two, rollouts that were cut are left
out of the loss; in the last they are kept. Prompts that the last checkpoint solves are dropped before a further stage.
The sampling temperature is fixed, at an entropy of about 0.3 nats of the distribution at that temperature; the loss has
the log-probabilities at it. Training prompts that share 9 consecutive tokens with a held-out one are left out.

    posttrain diagnose temperature MODEL tasks=mine.jsonl entropy=0.3
    posttrain run acereason tasks=mine.jsonl model=MODEL short.rollout.sampling.temperature=0.85    # prompt, answer

The temperature is that of the setting, for each stage a setting of its own: `short`, `middle`, `long`.

`CHANGES`: the rule of decontamination is the paper's.

Differs: there are three stages of one domain where the paper has six of two; limits are 1/4, 1/2 and all of the
setting's. Its growing of prompts and answers for SFT is a matter of data, and so is the thinning of short answers.
Rollouts that are left out do not count in the mean of their group. Left out: a larger base of the rotary embedding.

Measured here, in three stages of 12 steps on 500 sums (five seeds, 200 held-out): 79.4 % after SFT, 80.4 % at the end.
At temperature 1, an entropy of 0.10 nats in place of 0.31 in the short stage, it is 79.3 %, -1.1 points [-4.0, +1.8]:
the optimum is flat at this size. Half of the rollouts are cut in the short stage. Without the filter that stage takes
accuracy to 70.2 %, 9.6 points less than with it [3.6, 15.6]; after the long one the difference is -0.9 [-3.8, +2.0]
(docs/experiments.md, docs/stages.md).
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.filters.finished import Finished
from posttrain.components.selections.unsolved import Unsolved
from posttrain.datasets.overlap import Decontamination
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import rl_of, sampling_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.staged_sums import staged_sums
from posttrain.stages.rl import RL

PARENT: Final = "grpo"
SETTING: Final = "staged_sums"
PAPER: Final = "arXiv:2506.13284"
ROWS: Final = (146,)
CHANGES: Final = ("evaluation.decontamination",)

STAGES: Final = {"short": 4, "middle": 2, "long": 1}
"""By stage, what the most tokens of the setting are divided by."""


def acereason(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: imitation first, three stages of growing length, cut rollouts left out early."""
    recipe = with_imitation(grpo(recipe or staged_sums()))
    recipe = with_stage(recipe, replace(sft_of(recipe), epochs=5.0))
    stage = rl_of(recipe)
    if not hasattr(stage.rollout, "sampling"):
        raise UserError(
            f"recipe '{recipe.name}' has the rollout '{stage.rollout.kind}', which has no limit of tokens to let grow; "
            "apply acereason to a recipe that samples independently"
        )
    stages = {name: other for name, other in recipe.stages.items() if other is not stage}
    for place, (name, divisor) in enumerate(STAGES.items()):
        steps = (place + 1) * stage.steps // len(STAGES) - place * stage.steps // len(STAGES)
        stages[name] = _of_length(replace(stage, steps=max(1, steps)), divisor, first=place == 0)
    evaluation = replace(recipe.evaluation, decontamination=Decontamination(n=9, share=0.0))
    return replace(recipe, name="acereason", stages=stages, evaluation=evaluation)


def _of_length(stage: RL, divisor: int, *, first: bool) -> RL:
    """A stage with a part of the most tokens; cut rollouts are left out unless it has all."""
    sampling = sampling_of(stage)
    limit = max(1, sampling.max_tokens // divisor)
    rollout: Any = stage.rollout
    unsolved = Unsolved(reward=stage.reward, temperature=sampling.temperature or 1.0, max_tokens=limit, n=4)
    return replace(
        stage,
        rollout=replace(rollout, sampling=replace(sampling, max_tokens=limit)),
        filters={**({"finished": Finished()} if divisor > 1 else {}), **stage.filters},
        selection=stage.selection if first else unsolved,
    )
