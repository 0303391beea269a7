"""Behavior Priming: imitation of episodes with four good behaviours, right or wrong, and then GRPO over episodes.

Source: arXiv:2510.06534, and its released code: demonstrations are episodes with verification, use of authority,
adaptive search and error recovery, whatever their answers (`tasks/primed`). Then GRPO with a reward of 1 or 0 for the
answer, no reward for the format, clip 0.2 and a KL term of 0.001; a summary replaces the history, so that an episode
may be several rollouts, which are compared as one (`rollouts/summarized`, `advantages/by_episode`).

    posttrain run behavior_priming setting=inquiries model=FOLDER sft.tasks.environment.kind=mine.py \
        rollout.environment.kind=mine.py    # with a player of its own and a measure for each behaviour

`sft.tasks.answers=right` and ``wrong`` keep one kind, `sft.tasks.behaviours=[]` every episode.

`CHANGES`: the demonstrations are chosen by behaviours.

Differs: behaviours are measured by rule, not by a language model. Demonstrations are whole episodes, all turns of which
are trained, where the release has a row for each turn. Discovery of the behaviours by comparison of a strong and a weak
model is left out. GRPO's reference is the primed model.

Measured here, with a table in place of a model (150 steps, 5 seeds): primed by four behaviours with right answers 94 %
[92, 96] are right before and 99 % [97, 100] after, with wrong answers 5 % and 79 % [72, 85]. Right answers of a player
without the behaviours give 72 % and 78 % [74, 83], episodes of any actions 39 % and 89 % [79, 98]. So wrong answers are
unlearned, and the behaviours kept (verification in 98 % of the episodes at the end, and in none of the player's without
them), but not within these steps what right ones give (docs/experiments.md).

The default run with a small model, one seed: 72 % [59, 82] of 60 held-out tasks are right after imitation, 78 %
[66, 87] after 15 steps, no difference that 60 tasks can show.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.by_episode import ByEpisode
from posttrain.components.environments.sources import BEHAVIOURS, Sources
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.kl import KL
from posttrain.components.rollouts.summarized import Summarized
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.played import Played
from posttrain.components.tasks.primed import Primed
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, rollouts_of, sampling_of, sft_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.inquiries import inquiries

PARENT: Final = "grpo"
SETTING: Final = "inquiries"
PAPER: Final = "arXiv:2510.06534"
ROWS: Final = (140,)
CHANGES: Final = ("tasks",)


def behavior_priming(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: primed demonstrations before it, summaries in place of history, statistics of episodes."""
    recipe = with_imitation(grpo(recipe or inquiries()))
    stage, shown = rl_of(recipe), sft_of(recipe)
    own = stage.rollout
    environment, turns = (own.environment, own.max_turns) if isinstance(own, Turns) else (Sources(), 8)
    source = shown.tasks.tasks if isinstance(shown.tasks, Played) else shown.tasks or recipe.tasks
    primed = Primed(tasks=source, environment=environment, behaviours=BEHAVIOURS, turns=turns)
    stage = replace(
        stage,
        rollout=Summarized(environment=environment, n=rollouts_of(stage), max_turns=turns, sampling=sampling_of(stage)),
        advantage=ByEpisode(),
        objective=PPOClip(clip_low=0.2, clip_high=0.2),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001)},
    )
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    recipe = with_stage(replace(recipe, name="behavior_priming"), replace(shown, tasks=primed))
    return with_stage(recipe, stage)
