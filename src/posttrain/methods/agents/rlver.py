"""RLVER: PPO for dialogues with a simulated user whose mood at the end is the reward, with a thought before each reply.

Source: arXiv:2507.03112, and the released simulator SAGE. The mood starts at 40 and moves by at most 10 a turn; the
reward is e_T / 100, and 0 for a dialogue in which a reply breaks the format ``<think>...</think>`` (`rewards/mood`).
Only tokens of the agent are trained. The simulated user is `environments/moods`, or any environment with the measure
``mood``.

    posttrain run rlver setting=moods model=FOLDER tasks=scenes.jsonl   # columns: prompt (the scene); the need is drawn

Differs: the user is a rule and not a language model, so the same dialogue has the same score. A turn without the format
does not end the dialogue. The paper's learning rate, batch and KL are not known; they are the setting's, and PPO's.

Measured here, with a table in place of a model (60 steps, 5 seeds): the mood ends at 81.2 [80.4, 82.1] against 35.8
[32.2, 39.4] with PPO on whether it is good at the end, and 34.7 before; 88 is the most without a change of the need.
Replies without the format go from 5 % to 1 %. With GRPO 81.7 [80.9, 82.5]. A user with +2 and -9 ends at 52.9, with
96 % of replies that fit against 92 % (docs/experiments.md).

The default run has four turns, +10 and -10: in 40 steps the reward of the first and last five goes from 0.19 to 0.78,
and from 0.21 to 0.71, the mood from 25 to 78, and from 26 to 79 (two seeds). Of 40 held-out dialogues all end at 80,
after imitation none. Learning is not even: at steps 22 to 30 of the first run (reward at most 0.25,
mood 48 to 68) and at the last step of the second (0.43, mood 78) replies break the format. Held-out dialogues are
scored by the mood alone. With +6, -4 and eight turns, 20 steps of 8 tasks had moved the reward from 0.31 to 0.34 only,
at a rate of 0.001 and of 0.003.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.moods import Moods
from posttrain.components.rewards.mood import Mood
from posttrain.components.rollouts.turns import Turns
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.recipes.changes import rl_of, rollouts_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.moods import moods

PARENT: Final = "ppo"
SETTING: Final = "moods"
PAPER: Final = "arXiv:2507.03112"
ROWS: Final = (78,)


def rlver(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: the reward is the user's mood at the end of the dialogue."""
    recipe = as_ppo(recipe or moods())
    stage = rl_of(recipe)
    rollout = stage.rollout
    if not isinstance(rollout, Turns):
        rollout = Turns(environment=Moods(), n=rollouts_of(stage), max_turns=8, sampling=sampling_of(stage))
    return with_stage(replace(recipe, name="rlver"), replace(stage, rollout=rollout, reward=Mood()))
