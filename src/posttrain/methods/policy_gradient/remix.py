"""ReMix: rollouts of the last policies beside fresh ones, with two epochs; later on-policy, with a new reference.

Source: "Squeeze the Soaked Sponge", arXiv:2507.06892. Up to step T (50 with GRPO), each group of a batch is one of the
last two policies with probability 0.4, and there are two epochs over a batch (Mix-PPG). The clip is around pi_k /
pi_{k-i}, the ratio at the start of the step (`objectives/shifted_clip`). The loss has two KL divergences, from the
initial policy and from that of the step before (KL-Convex), and an entropy bonus. After step T all rollouts are fresh,
with one epoch; the regularizers stay, and the reference becomes pi_T (policy reincarnation). The optimizer is kept.

    posttrain run remix tasks=mine.jsonl model=FOLDER       # columns: prompt, answer

With `refill.replay.share=0 learner.epochs=1 penalties={}` it is GRPO to the bit. ReMix-PPO is this change applied to
PPO, with `refill.replay.steps=100` or 50.

`CHANGES`: the update-to-data ratio is a part of the method.

Differs: the formulas are those of a note on the paper; beta, the weight of the entropy and the clip are not in it
(0.001, 0.001 and the recipe's). The policy of the step before is that of the last snapshot, taken after each step: the
one that the step starts from. The other reading, the policy before that, needs a further copy:
`models.latest.source=role:policy hooks.previous.source=latest hooks.latest={kind: copy, target: latest, every: 1}`.

Measured here, at equal numbers of sampled tokens (60,000 of sums, 5 seeds) and a learning rate that suits GRPO (4e-4):
GRPO 73.4 %, with two epochs 67.4, ReMix that switches at step 30 60.5 (-12.9 points [-20.7, -5.1]), without a switch
51.2, with earlier rollouts wherever there are any 30.6: more updates on fewer fresh rollouts only hurt. The switch and
the fresh share order the variants as in the paper. Mean distance from the sampling policy with share 0, .2, .4, .8: 0,
.011, .022, .051 nats a token; lengths do not differ (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.hooks.copy import Copy
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.shifted_clip import ShiftedClip
from posttrain.components.penalties.convex_kl import ConvexKL
from posttrain.components.penalties.entropy import Entropy
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, several_updates, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl.refill import Refill
from posttrain.stages.rl.replay import Replay

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2507.06892"
ROWS: Final = (0,)
CHANGES: Final = ("learner.epochs",)
SWITCH: Final = 50
"""T: the last step with earlier rollouts."""


def remix(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: replay with a moved clip and two epochs, two KL terms, then a new reference and no replay."""
    recipe = with_rl(recipe or arithmetic())
    stage = rl_of(recipe)
    old = stage.objective if isinstance(stage.objective, PPOClip) else PPOClip()
    stage = replace(
        stage,
        refill=replace(stage.refill or Refill(rounds=0), replay=Replay(steps=SWITCH)),
        objective=ShiftedClip(clip_low=old.clip_low, clip_high=old.clip_high),
        learner=several_updates(stage.learner, epochs=2),
        penalties={**stage.penalties, "kl": ConvexKL(), "entropy": Entropy(coefficient=0.001)},
        hooks={
            **stage.hooks,
            "previous": Copy(target="previous", every=1),
            "reincarnation": Copy(target="reference", every=SWITCH, times=1),
        },
    )
    copies = {"reference": Model(source="role:policy"), "previous": Model(source="role:policy")}
    return with_stage(with_models(replace(recipe, name="remix"), copies), stage)
