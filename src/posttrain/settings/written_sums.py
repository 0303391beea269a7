"""Written sums: the policy writes sums, a judge that writes thoughts compares them, and the larger one should win.

Both are the bundled model. The judge imitates thoughts on pairs of sums, and the policy imitates sums of any size.
Every two rollouts of a group are then compared by the judge. Held-out prompts are scored by the size of the sum that is
written, which neither sees. The judge can
only read sums: it has no verdict on a text without one, which is a tie, so the audit of the reward only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.duels import Duels
from posttrain.components.rewards.written_sum import WrittenSum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.compared_sums import ComparedSums
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning

ITEMS = JudgeItems(tasks=ComparedSums(size=1000, seed=2, terms=(1, 1)), thoughts="again")


def written_sums() -> Recipe:
    """Imitation for the judge and the policy, then 20 steps of 8 tasks with 4 rollouts each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    imitation = replace(imitation, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    judge = replace(imitation, role="judge", tasks=ITEMS, limit=300, epochs=8.0, max_steps=50)
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=8)),
        reward=Duels(
            template="{question}\nA: {raw_first}\nB: {raw_second}\n",
            unreadable="tie",
            sampling=Sampling(temperature=0.6, max_tokens=64),
            chat=False,
        ),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
        audit=MEASURED,
    )
    recipe = replace(
        recipe,
        name="written_sums",
        tasks=ComparedSums(size=1000, terms=(1, 1)),
        stages={"judge": judge, "sft": replace(imitation, max_steps=20), "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=WrittenSum(terms=1), correct_at=0.75),
    )
    return with_models(recipe, {"judge": Model(source="pebble", trained=True)})
