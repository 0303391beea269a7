"""A judge by rubric, demonstrations and an adapter: PPO rewarded by scores that a small model writes in JSON.

Source: arXiv:2506.05748, of which the abstract and third-party notes were read. The judge is the base model with one
line of rubric that requires JSON, demonstrations in its prompt (six), and an adapter of rank 16 that learned from pairs
with reasons (`tasks/score_items`). Its score is the reward of online PPO at the last token (`rewards/json_score`),
without a reward model and without an offline phase of the policy.

    posttrain run lora_judge setting=arithmetic tasks=mine.jsonl judge.tasks.tasks=pairs.jsonl model=FOLDER
    # mine.jsonl: prompt, answer; pairs.jsonl: prompt, chosen, rejected, notes (a reason for each of the two)

``rl.reward.prompt.examples`` are the demonstrations, and ``judge.tasks.prompt.examples`` the same for its training.

``rl.reward='{kind: audited, of: {kind: json_score}}'`` stops where a text without content outranks right answers. An
adapter has layers x rank x sum(in + out) weights: 155,648 of the bundled model.

Where the policy has an adapter too, both are on one set of base weights, and neither acts on the other's
(`Model.shared`):

    posttrain run lora_judge setting=word_problems_lora judge.tasks.tasks=pairs.jsonl

Differs: models, texts, range of scores, form of the pairs, learning rates and PPO's settings are not published; they
are of this package. In the default the judge has a base of its own, one that can write the form; the policy trains all
of its weights.

Measured here (``python docs/experiments/json_judges.py --seeds 5``, 95 % intervals): the judge's base, which has the
form and scores by chance, puts 48.0 [39.2, 56.7] % of 200 new pairs in order, and 21.8 [-3.1, 46.7] % of its replies
have no score; with six demonstrations in the prompt, of which it never saw any, no reply has one. After 60 steps the
adapter puts 100.0 [100.0, 100.0] % in order with 0.0 [0.0, 0.0] % without a score, and so does a Bradley-Terry head
from the same pairs. Right sums of 200 held out are 67.6 [65.8, 69.4] % before; after PPO by the adapter 90.1 [88.4,
91.8] %, by the head 90.8 [89.4, 92.2] %, and by a judge from labels by chance 77.2 [59.9, 94.5] %: that control is no
zero, since such a judge prefers one kind of solution by chance, and PPO gains where it is the worked one. Six
demonstrations do not help a model of this size, so the default has none.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.json_score import JsonScore
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.tasks.score_items import ScoreItems
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import LoRA, Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.scored_sums import scored_sums
from posttrain.stages.sft import SFT
from posttrain.training.settings import Learning

PARENT: Final = "ppo"
SETTING: Final = "scored_sums"
PAPER: Final = "arXiv:2506.05748"
ROWS: Final = (289,)


def lora_judge(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a judge that scores in JSON learns by an adapter of rank 16 from pairs, and is the reward."""
    recipe = keep_verifier(ppo(recipe or scored_sums()))
    stage = rl_of(recipe)
    reward = stage.reward if isinstance(stage.reward, JsonScore) else JsonScore(unreadable=0.0)
    judge = SFT(
        objective=Likelihood(),
        reducer=Tokens(),
        role="judge",
        max_steps=60,
        learner=Learning(optimizer=AdamW(lr=5e-3), schedule=Cosine(warmup=0.05)),
        tasks=ScoreItems(tasks=stage.tasks or recipe.tasks, prompt=reward.prompt),
    )
    changed = replace(stage, reward=reward)
    recipe = with_stages_before(with_stage(replace(recipe, name="lora_judge"), changed), {"judge": judge}, changed)
    shared = recipe.models["policy"].lora is not None
    base = recipe.models.get("judge", Model(source="role:policy", shared=shared))
    return replace(recipe, models={**recipe.models, "judge": replace(base, lora=LoRA(rank=16), trained=True)})
