"""Reaching: a new flow moves a point to one of two targets; it imitates first, then learns with a critic.

The environment is ``reaching`` of `posttrain.components.rollouts.control`. An action is the end of a chain of four
steps with noise of a constant standard deviation. There is one episode per task, so the advantage is GAE with a critic
of the observations.
"""

from dataclasses import replace

from posttrain.components.advantages.gae import GAE
from posttrain.components.noises.constant import Constant
from posttrain.components.objectives.value_clip import ValueClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.episode import Episode
from posttrain.components.rollouts.control import Control
from posttrain.components.shapes.flow import Flow
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.reaching import Reaching
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def reaching() -> Recipe:
    """A flow of 4 steps, trained by flow matching first, and a critic; 64 episodes of four actions per step."""
    recipe = arithmetic()
    matching = replace(
        sft_of(demonstrations()),
        batch=64,
        epochs=20.0,
        max_steps=400,
        learner=Learning(optimizer=AdamW(lr=2e-3)),
        tasks=Reaching(),
    )
    stage = replace(
        rl_of(recipe),
        steps=60,
        prompts=64,
        rollout=Control(max_turns=4),
        reward=Episode(),
        filters={},
        advantage=GAE(),
        learner=Learning(optimizer=AdamW(lr=3e-4), epochs=5, minibatches=2),
        critic=ValueClip(),
        critic_learner=Learning(optimizer=AdamW(lr=3e-3), epochs=5, minibatches=2),
    )
    flow = Flow(dims=2, condition=3, steps=4, noise=Constant(), token="chain", bound=1.0)
    return replace(
        recipe,
        name="reaching",
        models={
            "policy": Model(source="new", shape=flow, trained=True),
            "critic": Model(source="role:policy", head="value", trained=True),
        },
        tasks=Episodes(),
        stages={"matching": matching, "rl": stage},
        evaluation=Evaluation(verifier=Episode(value="return", solved_at=0.5), correct_at=0.5),
    )
