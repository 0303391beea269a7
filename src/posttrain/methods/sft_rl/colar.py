"""CoLaR: reasoning in latent steps of several tokens each, imitated with merged embeddings, then trained by GRPO.

Source: Tan et al. 2025, arXiv:2505.16552, and its release (xiaomi-research/colar at 4b6ae9a0). The prompt states how
many tokens a latent step stands for, c. A head on the last hidden state gives a Gaussian over the next input embedding;
what is drawn is fed back, until the likeliest token is the mark; then the answer follows as text (top-p 0.9).

Imitation: each chunk of c tokens of the reasoning, c drawn for a step of training, is one latent step with the sum of
their embeddings over the root of their number; its label is one of them, drawn; the label, the answer and the vector
are learned. Reinforcement: 8 rollouts a prompt, PPO's clip for steps and text, where the log-probability of a latent
step is the mean over dimensions of its log-density; sums over a sequence divided by 32; no KL.

    posttrain run colar tasks=mine.jsonl    # columns: prompt, answer, completion ("REASONING #### ANSWER")
    posttrain run colar models.policy.latent_steps.speed=4
    posttrain run colar "rl.reward={kind: per_step, of: match}"    # right answers over their number of steps
    posttrain run colar rl.reducer=sequences                       # the mean over each sequence's steps

`CHANGES`: the latent steps are the policy's.

Differs: drawn and scored at one temperature (the release scores at another). Vectors are learned by their density; the
release's default is the squared error (`sft.objective.form=error`), with which the bundled model does not carry a chain
on. The mark is one token of the model's, and chosen, not drawn; no gradient goes through merged embeddings. One update
a step, on all prompts; groups with equal rewards are left out, as in the parent.

Measured here: sums of three digits, 400 updates with c of 1, 2 or 4, five seeds, 200 other sums: with c = 1 71.3 %
[62.7, 79.9] in 13.4 latent steps for 13.5 tokens of reasoning; with 2 8.3 % in 6.3 steps, with 4 8.3 % in 3.7. So steps
follow the prompted speed, but at this size the loss of accuracy is not mild: a merged chain is not carried on. From
there 40 steps of GRPO with c = 2 change neither number: 8.8 % [5.9, 11.7] in 6.5 steps with the reward of the answer,
8.3 % [3.9, 12.7] in 6.1 with the same over the number of steps, 8.7 % [7.1, 10.3] in 6.4 with the mean over each
sequence (docs/experiments.md). The default run, 1,000 updates
with c of 1 to 5, goes from 0 to 14.5 % with c = 2, and to 10.0 % after GRPO (one seed, 200 held-out sums).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.compressed import Compressed
from posttrain.components.reducers.constant import Constant
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import LatentSteps
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.latent_sums import latent_sums

PARENT: Final = "grpo"
SETTING: Final = "latent_sums"
PAPER: Final = "arXiv:2505.16552"
ROWS: Final = (300,)
CHANGES: Final = ("models.policy.latent_steps",)


def colar(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: latent steps, an imitation of compressed solutions first, sums over a constant."""
    recipe = with_imitation(grpo(recipe or latent_sums()))
    recipe = with_stage(recipe, replace(sft_of(recipe), objective=Compressed(form="density"), reducer=Sequences()))
    stage, policy = rl_of(recipe), recipe.models["policy"]
    recipe = with_stage(recipe, replace(stage, reducer=Constant(length=32.0)))
    policy = replace(policy, latent_steps=policy.latent_steps or LatentSteps())
    return replace(recipe, name="colar", models={**recipe.models, "policy": policy})
