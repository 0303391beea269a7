"""MaskSearch: reinforcement on paragraphs with masked entities, restored by search, before reinforcement on questions.

Source: arXiv:2505.20285; the tasks by the released generator, the reinforcement by the abstract and reviews, as its
code is not released. Stage ``ramp``: paragraphs with one to four masks, those with fewer first (`tasks/masked`,
`curricula/in_order`). Then the questions of the recipe. Both with the learning of DAPO (clip 0.2 and 0.28, groups with
equal rewards sampled anew, mean over tokens) and 0.5 for the format plus the token recall of the answer. Results of
searches are not trained.

    posttrain run mask_search setting=pages model=FOLDER tasks=questions.jsonl ramp.tasks.tasks=paragraphs.jsonl \
        rollout.environment.pages=pages.jsonl    # columns: prompt, answer; prompt, title, entities; prompt

`rl.reward.measure=f1`, ``exact``, or a judge (`reward=judge`) are not stuffed by long answers, as recall is.

`CHANGES`: the reward.

Differs: the imitation before is the setting's, of worked questions; the release has trajectories of several language
models (planner, searcher, observer), and its fine-tuned model makes more of them. The model judges no answers here.

Measured here, with a table in place of a model, on questions that need two pages (80 steps, 5 seeds): with F1 as the
reward 17 % [9, 25] are right and 1.39 searches [1.01, 1.78] are made if the first half of the steps is on masked
paragraphs, those with fewer masks first; 10 % [2, 17] in any order, and 0 % without a search on questions alone, whose
answers then have 13 words. With exact answers 12 % [8, 16] and 2 % [-3, 6]. With recall answers have 13 words and are
never right, with masks and without (docs/experiments.md).

The default run with a small model (one seed, first and last five of 25 steps): on masks the reward goes from 0.12 to
0.51 and searches from 1.2 to 2.2, on questions the reward from 1.25 to 1.34 and right answers from 77 to 86 %. Of 60
held-out questions 82 % [70, 89] are right after imitation, 57 % [44, 68] after the masks and 83 % [72, 91] at the end:
the masks cost what the questions regain, and against imitation alone nothing is gained. On masks the format and the
search are learned, and no paragraph is whole.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.in_order import InOrder
from posttrain.components.environments.archive import Archive
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards.token_recall import TokenRecall
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.masked import Masked
from posttrain.components.tasks.pages import Pages
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, rollouts_of, sampling_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.pages import pages
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "pages"
PAPER: Final = "arXiv:2505.20285"
ROWS: Final = (213,)
CHANGES: Final = ("reward",)


def mask_search(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stage of masked paragraphs before the questions, both with recall as the reward."""
    recipe = keep_verifier(grpo(recipe or pages()))
    stage, people = rl_of(recipe), 100
    rollout = stage.rollout
    if not isinstance(rollout, Turns):
        archive = Archive(pages=Pages(size=people, what="titled"))
        rollout = Turns(environment=archive, n=rollouts_of(stage), max_turns=5, sampling=sampling_of(stage))
    stage = replace(
        stage,
        rollout=rollout,
        reward=TokenRecall(),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
        refill=Refill(rounds=2),
    )
    masked = Masked(tasks=Pages(size=people, what="paragraphs"), copies=2)
    first = replace(stage, tasks=masked, curriculum=InOrder())
    recipe = with_stage(replace(recipe, name="mask_search"), stage)
    return with_stages_before(recipe, {"ramp": first}, stage)
