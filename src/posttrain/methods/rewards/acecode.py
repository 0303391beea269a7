"""ACECode: PPO for programs that are right and do little work.

Source: Yang et al. 2024, arXiv:2412.17264: 0.5 + 0.5 * min(t_ref / t_own, 1) for a program that passes every test, and
by steps less for one that prints something wrong, crashes, or does not compile; a critic, and a KL to the model that
training began with.

Differs: work is counted in instructions, not timed; the cap of 1 and the levels of failure are ours
(`posttrain.components.rewards.counted_work`), and so are the sizes. The model is made here and imitates generated
programs first: sums up to n in C, half of them added term by term and half in closed form.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.counted_work import CountedWork
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.running_sums import RunningSums
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (64,)

WORDS: Final = (
    *("C: sum ", "*i+", "#include <stdio.h>\nint main(){", "long n", ",t=0", ';scanf("%ld",&n);', 'printf("%ld",'),
    *("t);}", "for(long i=1;i<=n;i++)", "t+=", "*n*", "(n+1)", "/2", "*n", *(f"{number}" for number in range(31))),
)
"""One token each, so that a program is a dozen of them."""


def acecode(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: programs as tasks, paid by how much work they do, after the imitation of a few."""
    recipe = recipe or ppo()
    imitation = sft_of(sft())
    imitation = replace(imitation, epochs=6.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=16,
        prompts=6,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=32)),
        reward=CountedWork(language="c"),
    )
    shape = Decoder(layers=2, width=128, context=64, words=WORDS)
    changed = replace(
        recipe,
        name="acecode",
        tasks=RunningSums(),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=CountedWork(language="c"), correct_at=0.5, holdout=16),
    )
    return replace(changed, models={**changed.models, "policy": Model(source="new", shape=shape, trained=True)})
