"""A bandit for policy filtration: a reward that errs most about answers of middling quality, and not at the ends.

An answer is one token, of quality its id modulo 16 over 15. The reward is that and an error, drawn once for each pair
of task and token, with a std of `size` in the middle that falls to 0 at both ends; with `even` it is the same for
all, of the same mean square. `reward/true` in the metrics is the quality of the answers.

    posttrain run pf_ppo reward=docs/experiments/unreliable_reward.py:score rollout.sampling.max_tokens=1
"""

import hashlib
from statistics import NormalDist

LEVELS = 16


def quality(token_id):
    """Quality of an answer, in [0, 1]."""
    return token_id % LEVELS / (LEVELS - 1)


def std(true, size, even):
    """Of the error about an answer of that quality."""
    worths = [level / (LEVELS - 1) for level in range(LEVELS)]
    if even:
        return size * (sum((4 * w * (1 - w)) ** 2 for w in worths) / LEVELS) ** 0.5
    return size * 4 * true * (1 - true)


def score(trajectory, task, size=0.25, even=False):
    """The reward, with the true quality beside it."""
    token_id = int(trajectory.completion_ids[0])
    true = quality(token_id)
    digest = hashlib.blake2b(f"{task.key}:{token_id}".encode(), digest_size=8).digest()
    normal = NormalDist().inv_cdf((int.from_bytes(digest, "little") + 0.5) / 2**64)
    return {"score": true + std(true, size, even) * normal, "true": true}
