"""UFO ("try again"): whoever answers wrongly is told so and answers again, up to five times; PPO learns from it all.

Source: Liu et al. 2025, arXiv:2507.14295, with the settings of the released code: groups of 16 attempts, of which those
whose rewards differ most are kept, GAE with gamma 1 and lambda 1, clip 0.2 and 0.28, entropy 0.001, KL 0.001, reward
1/2 per wrong try, repetition penalty 1/2.

Differs: the questions ask for a box, half of them without saying which (see the tasks), and the model is a new one of
200k weights, which first imitates random answers, to learn what an answer looks like. Answers are one token each. A
step learns from half of 16 groups, where the release takes a quarter of 8. Held-out tasks are attempted in the same
five turns; one counts as right that is solved in any of them (Succ@5).

Measured here: against training on one try (45 steps, 5 seeds): 55.7 % of held-out questions are solved in five greedy
answers against 35.4 %, +20.3 points [+14.2, +26.4], from four times as many sampled tokens (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.environments.try_again import TryAgain
from posttrain.components.filters.most_varied import MostVaried
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe
from posttrain.training.settings import Learning

ROWS: Final = (268,)

BOXES: Final = tuple("abcdef")
WORDS: Final = (
    *("Ball ", ", boxes abcdef, in ", ", boxes abcdef, hidden", ".\nBox:", "No.\nBox:"),
    *(f" {box}" for box in BOXES),
    *BOXES,
)
"""One token each, so that an answer is one choice, and stands as far behind the last one in every turn."""


def ufo(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: five tries, told only whether they are wrong, and groups for the filter."""
    recipe = recipe or ppo()
    world, tasks = TryAgain(feedback="No.\nBox:"), Guessing(size=1000)
    rollout = Turns(environment=world, n=16, max_turns=5, sampling=Sampling(max_tokens=4))
    answers = Played(tasks=tasks, environment=world, actions=tuple(f" {box}" for box in BOXES), turns=5)
    stage = rl_of(recipe)
    stage = replace(
        stage,
        prompts=16,
        rollout=rollout,
        reward=Verdict(),
        filters={"most_varied": MostVaried(keep=0.5)},
        advantage=GAE(gamma=1.0, lam=1.0),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
        penalties={"kl": KL(coefficient=0.001, form="k1", where="reward"), "entropy": Entropy(coefficient=0.001)},
        learner=replace(stage.learner, optimizer=AdamW(lr=1e-3)),
    )
    new = Model(source="new", shape=Decoder(layers=2, width=64, mlp_width=192, words=WORDS), trained=True)
    learner = Learning(optimizer=AdamW(lr=3e-3))
    return replace(
        recipe,
        name="ufo",
        models={**recipe.models, "policy": new},
        tasks=tasks,
        stages={"sft": replace(sft_of(sft()), tasks=answers, learner=learner), "rl": stage},
        evaluation=Evaluation(verifier=Verdict(pay="solved"), rollout=rollout, holdout=60, samples=2),
    )
