"""Running sums: a new model writes C programs that sum a linear function up to n, and is rewarded for passed tests.

It first imitates generated programs, half of them adding term by term and half in closed form, which needs a fraction
of the work. Held-out programs are scored by the instructions that they execute.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.running_sums import RunningSums
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

WORDS: Final = (
    *("C: sum ", "*i+", "#include <stdio.h>\nint main(){", "long n", ",t=0", ';scanf("%ld",&n);', 'printf("%ld",'),
    *("t);}", "for(long i=1;i<=n;i++)", "t+=", "*n*", "(n+1)", "/2", "*n", *(f"{number}" for number in range(31))),
)
"""One token each, so that a program is a dozen of them."""


def running_sums() -> Recipe:
    """A new decoder, six epochs of imitation, then 16 steps of 6 tasks with 4 programs each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=6.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=16,
        prompts=6,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=32)),
        reward=IOTests(language="c", references=20),
    )
    shape = Decoder(layers=2, width=128, context=64, words=WORDS)
    return replace(
        recipe,
        name="running_sums",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=RunningSums(),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=CountedWork(language="c", references=20), correct_at=0.5, holdout=16),
    )
