"""SPCT: a judge with critique and points for each response, rejective fine-tuning, rule RL, and votes of its replies.

Source: DeepSeek-GRM, arXiv:2504.02495; the abstract and technical notes that cite equations were read. The judge writes
principles, a critique and a whole number for each response. It first imitates its own right replies to items that it
does not always get right, three samples each and one with the solution in the prompt (`selections/rejected`); a meta
reward model learns which of its replies are right (`stages/outcome_model`); GRPO in groups of 4 rewards it with 1 where
the best response alone is first and with -1 otherwise (`rewards/strict_best`), with a larger KL, to the model after the
imitation, in place of a reward of the format. Held-out items are answered by the vote of 4 replies, of which the meta
model keeps half (`search/score_votes`).

    posttrain run spct tasks.tasks=mine.jsonl
    # columns: prompt, principle, candidates (texts), gold (numbers); thought (principles and critique) for imitation

``evaluation.search.meta_role=null`` sums over all replies, ``evaluation.search.count=majority`` counts them.
`CHANGES`: groups of 4 are the paper's, and votes are its way of inference.

Differs: the KL of .08 is from memory in the notes. General instruction data beside the judge's (without them 63.3
against 68.8) are the user's. Responses have one order for each item, where a new one for each sample is advised.

Measured here (``python docs/experiments/judge_votes.py --seeds 5``): of a simulated judge of four candidates the sum of
8 replies has the best one first in 79.6 % [76.6, 82.6] of the items, the majority in 72.0 % [68.2, 75.8], and the sum
of the half that a meta model (AUC .80) keeps in 85.0 % [82.7, 87.3]; with 32 replies 97.1, 93.4 and 98.8 %. A tabular
judge that gives points 1 to 5 puts the larger of two sizes strictly first in 40 % of the pairs, with 20 % ties, and
after 300 steps by `strict_best` in 97.5 % [91.9, 100], with 2.3 % ties; with ties accepted in 77.5 %, with 22.1 % ties.
The default run, one seed, pairs of digits with the better one strictly first, of 200 held out: 40.5 % after the
imitation of coarse points with errors, 56.0 % after the rejective fine-tuning and 64.0 % [57.1, 70.3] after 40 steps
(by votes 51.0 and 59.0 %). Imitation for 300 steps in place of 100 gives 66.5, 67.0 and 80.0 % [73.9, 85.0], by votes
78.5 and 88.5 %. With numbers up to 99 the imitated judge orders by chance, and reinforcement teaches it to avoid ties
alone.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.strict_best import StrictBest
from posttrain.components.rollouts.independent import Independent
from posttrain.components.search.score_votes import ScoreVotes
from posttrain.components.selections.rejected import Rejected
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import (
    keep_verifier,
    rl_of,
    sampling_of,
    sft_of,
    with_models,
    with_stage,
    with_stages_before,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.scored_pairs import scored_pairs
from posttrain.stages.outcome_model import OutcomeModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "scored_pairs"
PAPER: Final = "arXiv:2504.02495"
ROWS: Final = (152,)
CHANGES: Final = ("rollout.n", "evaluation.search")


def spct(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rejective fine-tuning and a meta model first, a reward of 1 and -1, a KL of .08, votes."""
    recipe = with_imitation(keep_verifier(grpo(recipe or scored_pairs())))
    stage, imitated = rl_of(recipe), sft_of(recipe)
    sampling, reward = sampling_of(stage), StrictBest()
    own = Rejected(reward=reward, temperature=sampling.temperature or 1.0, max_tokens=sampling.max_tokens, first=96)
    meta = OutcomeModelTraining(
        rollout=Independent(n=3, sampling=sampling),
        reward=reward,
        reducer=Sequences(),
        role="meta",
        steps=6,
        batch=8,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        tasks=stage.tasks,
    )
    changed = replace(
        stage,
        rollout=Independent(n=4, sampling=sampling),
        reward=reward,
        penalties={**stage.penalties, "kl": KL(coefficient=0.08)},
    )
    models = {
        "meta": Model(source="role:policy", head="reward", trained=True),
        "reference": Model(source="role:policy"),
    }
    recipe = with_models(with_stage(replace(recipe, name="spct"), changed), models)
    rejective = replace(imitated, selection=own, epochs=1.0, max_steps=6, learner=stage.learner)
    recipe = with_stages_before(recipe, {"rejective": rejective, "meta": meta}, changed)
    votes = ScoreVotes(n=4, meta_role="meta", sampling=sampling)
    return replace(recipe, evaluation=replace(recipe.evaluation, search=votes))
