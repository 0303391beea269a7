"""A toy reward for CORY: the share of small letters from a to h in a completion of a tiny new model.

    M='models.policy={source: new, shape: {layers: 1, width: 32, heads: 2, kv_heads: 1, mlp_width: 64}, trained: true}'
    S='rl.steps=60 prompts=32 rollout.n=1 rollout.sampling.max_tokens=8 rl.learner.optimizer.lr=1e-3 threads=1'
    posttrain run ppo "$M" $S reward=docs/experiments/good_tokens.py:score
    posttrain run cory "$M" $S reward=docs/experiments/good_tokens.py:score

The effect shows in `reward` of the former and in `reward/pioneer` of the latter, as the mean of the last ten steps.
"""


def score(completion: str) -> float:
    """The share of good characters; 0 for an empty completion."""
    return sum(letter in "abcdefgh" for letter in completion) / max(len(completion), 1)
