r"""LDC: a controller for each dimension of research ideas, trained by a reward model of its own, and planned strengths.

Source: Learning to Generate Research Ideas with Dynamic Control, arXiv:2412.14626. Only abstracts and notes were read:
that ideas are imitated first, that novelty, feasibility and effectiveness have a reward model each, and that
controllers of dimensions are coordinated by a decoder of sentences at inference. All formulas are unverified, of this
package (`posttrain.policies.controllers`). A matrix on the output embeddings is steered by a strength from -1 to 1;
a rollout with strength 1 in one dimension is rewarded by that dimension's model, which trains its matrix alone. A
recurrent network at the ends of sentences then learns strengths from ideas that have each section's goal.

    posttrain run ldc tasks.tasks=ideas.jsonl sft.tasks=ideas.jsonl novelty.tasks=ideas.jsonl \
        feasibility.tasks=ideas.jsonl effectiveness.tasks=ideas.jsonl planning.tasks.tasks=good.jsonl
    # columns: prompt, completion, novelty, feasibility, effectiveness (1 to 5); good.jsonl: prompt, completion

`CHANGES`: tasks get strengths, and the policy controllers. The field ``eps`` of a prompt has rows of strengths, one for
each sentence, or "planned".

Differs: unverified but for its aims. The baseline of the clipped objective is the mean of a prompt's rollouts, which
have the same strengths: a critic that does not see these has one baseline for all dimensions. A small KL keeps texts
near the base. Scores are of letters by code, and not of reviews.

Measured here (``python docs/experiments/dynamic_control.py --seeds 5``, the default run and 64 ideas for each setting):
held-out ideas with more than half of the letters of the strength's dimension are 0.4 % before and 100 % after in all
seeds. The share of a dimension's letter never falls with its strength in any seed: for novelty 0, .001, .254 [.232,
.277], .871 [.670, 1.072] and .936 [.809, 1.062] at -1, -.5, 0, .5 and 1. Between novelty alone and feasibility alone
both shares trade: .936 and .019, .886 and .046, .442 and .479, .018 and .972, .002 and .996; a policy without
controllers that is rewarded by the mean of both is one point, another in each seed: .338 [.057, .619] and .636 [.330,
.942]. By strengths for each sentence, sections have .937, .985 and .938 of their own letter, by constant thirds .325,
.349 and .262, by the network's .669, .723 and .665, and the base .249, .248 and .224: it learns the ideas that it saw,
whose shares are .7, and not the best ones. A forged instruction outranks 12 of 16 ideas that were drawn by chance: the
setting's audit only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.heads import Heads
from posttrain.components.rewards.steered import Steered as Weighed
from posttrain.components.tasks.ideas import Ideas
from posttrain.components.tasks.steered import Steered
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Controllers, Model
from posttrain.recipes.changes import (
    keep_verifier,
    rl_of,
    with_models,
    with_stage,
    with_stages_after,
    with_stages_before,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.steered_ideas import steered_ideas
from posttrain.stages import Stage
from posttrain.stages.heads import HeadsTraining
from posttrain.stages.sft import SFT
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "steered_ideas"
PAPER: Final = "arXiv:2412.14626"
ROWS: Final = (172,)
CHANGES: Final = ("tasks", "models.policy.controllers")


def ldc(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: reward models of dimensions, controllers that are trained alone, and a network that plans."""
    recipe = keep_verifier(grpo(recipe or steered_ideas()))
    steered = recipe.tasks if isinstance(recipe.tasks, Steered) else Steered(tasks=recipe.tasks)
    stage, source = rl_of(recipe), steered.tasks
    ours = isinstance(source, Ideas)
    raters = source.annotators if isinstance(source, Ideas) else ()
    sections = Ideas(seed=3, sections=True, annotators=raters) if ours else source
    scored: dict[str, Stage] = {
        name: HeadsTraining(
            reducer=Sequences(),
            labels=(name,),
            role=name,
            max_steps=30,
            learner=Learning(optimizer=AdamW(lr=2e-3)),
            tasks=Ideas(seed=2, annotators=raters) if ours else source,
        )
        for name in steered.dimensions
    }
    planning = SFT(
        objective=Likelihood(),
        reducer=Tokens(),
        max_steps=40,
        epochs=2.0,
        learner=Learning(optimizer=AdamW(lr=1e-2)),
        tasks=replace(steered, tasks=sections, draw="planned"),
    )
    policy = replace(recipe.models["policy"], controllers=Controllers(count=len(steered.dimensions)))
    models = {name: Model(source="role:policy", head="reward", trained=True) for name in steered.dimensions}
    models["reference"] = Model(source="role:policy")
    recipe = with_models(replace(recipe, name="ldc", tasks=steered, models={**recipe.models, "policy": policy}), models)
    reward = Weighed(parts={n: Heads(role=n, weights={n: 1.0}) for n in steered.dimensions})
    changed = replace(stage, reward=reward, penalties={**stage.penalties, "kl": KL(coefficient=0.02)})
    recipe = with_stages_before(with_stage(recipe, changed), scored, changed)
    return with_stages_after(recipe, {"planning": planning}, changed)
