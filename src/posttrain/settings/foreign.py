"""Foreign: an agent in an environment of another library, or in a class of the user's, with text for what it sees.

A new model of 200k weights first imitates the environment's own solver, random legal actions where it has none, or else
examples that its text shows. The environment is ``rollout.environment.source``; ``world=SOURCE`` on the command line
sets it everywhere. A held-out episode is correct where the sum of its rewards reaches ``solved_at``.
"""

from dataclasses import replace

from posttrain.components.environments.foreign import Foreign
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def foreign() -> Recipe:
    """A new model, imitation of a solver or of legal actions, then rollouts of up to eight turns."""
    recipe = arithmetic()
    environment, tasks = Foreign(), Episodes(size=200)
    shown = Played(tasks=tasks, environment=environment, player="solver")
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Turns(environment=environment, n=8, max_turns=8, sampling=Sampling(max_tokens=96)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, context=4096)
    return replace(
        recipe,
        name="foreign",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=40, samples=2, verifier=Verdict(value="solved")),
    )
