"""Fleming-R1: a cold start on chains of facts, then GRPO in stages on wrong and right answers, 1 to 1 and 2 to 1.

Source: arXiv:2509.15279, sections 3.1 to 3.3. Questions are of a graph of facts of which one entity is masked, with
look-alike options (`posttrain.components.tasks.knowledge_graph`), beside the user's own. After imitation of chains the
first stage has as many hard as simple questions. For each further one the newest model answers the whole data set, and
what it gets wrong and right makes the next set, 2 to 1; there are twice the rollouts of a question. The loss is
-A log p, with A = r - mean(r): no division by the std, no clip, no KL.

    posttrain run fleming_r1 tasks=mine.jsonl model=FOLDER    # prompt, options (a list), answer, completion (a chain)
    posttrain run fleming_r1 'tasks={kind: mixture, sources: {mine: mine.jsonl, graph: knowledge_graph}}'

Wrong answers alone: `mined_1.selection.right=0 mined_2.selection.right=0`. A model that reasons already skips the cold
start: `sft.max_steps=1`. The reward is the setting's; a form: `reward={kind: gated, gate: format, reward: ...}`.

Differs: hard and simple are by the model's own answers, where a language model labels them in the paper; a teacher that
sees the answer, and goes back and corrects hard chains, is here the chain that the graph gives. Steps are shared evenly
by the three stages; sizes and rates are the setting's, as the paper gives none. The optimizer of each stage begins
anew.

Measured here: a simulated learner of three kinds of questions, of which each loses a tenth of what another gains
(`docs/experiments/phases.py`, 5 seeds): accuracy on three hops .283 [.212, .354] with 2 to 1, .266 [.213, .320] with
any tasks, .455 [.370, .540] with wrong ones alone; on one hop .864 [.844, .883], .865 [.853, .876] and .794 [.783,
.804]. So wrong answers alone forget, as expected, and 2 to 1 is as good as any tasks; the gain of the paper does not
show. Groups with unequal rewards in the last stage: 80, 79 and 89 % (docs/experiments.md).
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.selections.by_outcome import ByOutcome
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import every_group, rl_of, sampling_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.graph_questions import graph_questions
from posttrain.stages.rl import RL

PARENT: Final = "dr_grpo"
SETTING: Final = "graph_questions"
PAPER: Final = "arXiv:2509.15279"
ROWS: Final = (314,)

STAGES: Final = {"general": (1, 1), "mined_1": (2, 1), "mined_2": (2, 1)}
"""By stage, the parts of wrong and of right answers."""


def fleming_r1(recipe: Recipe | None = None) -> Recipe:
    """A change to Dr. GRPO: imitation first, then three stages, each on wrong and right answers in a ratio."""
    recipe = with_imitation(dr_grpo(recipe or graph_questions()))
    stage = rl_of(recipe)
    if not hasattr(stage.rollout, "n"):
        raise UserError(
            f"recipe '{recipe.name}' has the rollout '{stage.rollout.kind}', which has no number of rollouts; "
            "apply fleming_r1 to a recipe that samples independently"
        )
    stage = replace(stage, objective=PolicyGradient(), filters=every_group(stage))
    stages = {name: other for name, other in recipe.stages.items() if other is not rl_of(recipe)}
    for place, (name, parts) in enumerate(STAGES.items()):
        steps = (place + 1) * stage.steps // len(STAGES) - place * stage.steps // len(STAGES)
        stages[name] = _on(replace(stage, steps=max(1, steps)), parts, more=place > 0)
    return replace(recipe, name="fleming_r1", stages=stages)


def _on(stage: RL, parts: tuple[int, int], *, more: bool) -> RL:
    """A stage on wrong and right answers in these parts, with more rollouts of each task."""
    wrong, right = parts
    sampling = sampling_of(stage)
    outcome = ByOutcome(reward=stage.reward, wrong=wrong, right=right, max_tokens=int(sampling.max_tokens))
    rollout: Any = stage.rollout
    return replace(stage, rollout=replace(rollout, n=2 * rollout.n) if more else rollout, selection=outcome)
