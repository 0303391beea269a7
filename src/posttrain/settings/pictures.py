"""Pictures: a new flow imitates grey pictures of 16 x 16 pixels of mixed quality, and is rewarded by a noisy judge.

The condition is the requested shade of a square. The judge is code with noise, and scores four aspects of a picture by
their mean. Held-out pictures are scored without noise; correct is a mean of at least 3 of 5.
"""

from dataclasses import replace

from posttrain.components.noises.constant import Constant
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.picture import Picture
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.flow import Flow
from posttrain.components.tasks.pictures import Pictures
from posttrain.datasets.pictures import SIDE
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def pictures() -> Recipe:
    """A flow of 8 steps, trained by flow matching first; then 30 steps of 16 requests with 8 pictures each."""
    recipe = arithmetic()
    matching = replace(
        sft_of(demonstrations()), batch=64, epochs=40.0, max_steps=300, learner=Learning(optimizer=AdamW(lr=2e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Picture(noise=0.5),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    flow = Flow(dims=SIDE * SIDE, condition=1, steps=8, width=128, noise=Constant())
    return replace(
        recipe,
        name="pictures",
        models={"policy": Model(source="new", shape=flow, trained=True)},
        tasks=Pictures(size=2800),
        stages={"matching": matching, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=Picture(), correct_at=3.0),
    )
