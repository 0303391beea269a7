r"""Multi-agent refined preferences: agents review a policy's own texts, a reward model learns, then GRPO by its score.

Source: path A of Igniting Creative Writing in Small Language Models, arXiv:2508.21476, and its release (992c2287).
Retrieved examples, an agent for merits, one for flaws, a strict judge without a tie and a reflecting agent give each
text a verdict (`selections/refined_pairs`); a reward model learns from pairs of a good and a bad text, and GRPO is
rewarded by its score. Path B, whose judge is optimised as text, is `guided_judge`.

    posttrain run refined_preferences tasks=mine.jsonl models.judge.source=http://HOST/v1 \
        reward_model.selection.role=judge
    # columns: prompt, completion; for retrieval: label (0 or 1), clicks

Differs: batch, learning rates and lengths are the setting's; the KL loss is .1 and not .001, and a text that is cut
has the reward -5, since a reward model of whole texts likes endless ones. The agents of the default are code for
greetings, which know them in part (`posttrain.datasets.reviews`), since no bundled model follows instructions. The
release's supervised stage on 4,000 items is the setting's imitation.

Measured here (``python docs/experiments/refined_judges.py --seeds 5 --runs``, agents by code): of the verdicts on 400
greetings of the data the share that is right rounds to 1.00. Without retrieval 2 % of the bad texts are called good,
without merits 2 %, without flaws 83 %, without reflection 15 %. Policies, the default run: good greetings of 100 held
out rise from none to 82.4 % [62.1, 102.7]. By a reward model of as many labelled texts as the rules of `guided_judge`
saw, 80, it is 14.0 % [-24.9, 52.9], while its reward is larger (4.91 against 3.64): annotators never saw a rare fault,
and four of five policies keep one. Every text without content outranks 16 of 16 demonstrations, which have faults of
their own: the setting's audit only measures that.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.ended import Ended
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.selections.refined_pairs import RefinedPairs
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.greetings import greetings
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "greetings"
PAPER: Final = "arXiv:2508.21476"
ROWS: Final = (273,)


def refined_preferences(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a reward model of pairs that agents made of the policy's own texts is the reward."""
    recipe = keep_verifier(grpo(recipe or greetings()))
    stage = rl_of(recipe)
    learning = RewardModelTraining(
        reducer=Sequences(),
        max_steps=90,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        selection=RefinedPairs(n=8, sampling=sampling_of(stage), first=800),
        tasks=stage.tasks,
    )
    model = Model(source="role:policy", head="reward", trained=True)
    recipe = with_models(
        replace(recipe, name="refined_preferences"), {"reward": model, "reference": Model(source="role:policy")}
    )
    penalties = {**stage.penalties, "kl": KL(coefficient=0.1)}
    changed = replace(stage, reward=Ended(of=RewardModel(), cut=-5.0), penalties=penalties)
    return with_stages_before(with_stage(recipe, changed), {"reward_model": learning}, changed)
