"""MRT on slots of candidates: does progress against answering at once make thoughts end sooner at equal accuracy?

    python docs/experiments/candidate_slots.py --seeds 5

Sheet of row 39 (arXiv:2503.07572). One of 8 candidates is right, evenly. An episode of a thought tests a candidate, or
has words alone; a thought has at most 12 episodes and may end before. An answer is a draw from the posterior: right
with J = 1 where the right candidate was tested, else 1 / (number of those not tested), which is exact. The policy is a
table of logits by the number of episodes so far and whether the right one was found; words alone have the probability
one half at first, and nothing remembers which candidates were tested but the number.

``outcome`` is GRPO: 8 thoughts of a question, reward minus the mean of the group. ``outcome and progress`` is the
objective of the paper, alpha 1: each episode of the same thoughts has its progress beside that, J after it minus J
before it, which is `termination` with the answer at once as the only other rollout; ``progress`` is that part alone.

``prefixes`` is the form with groups: one thought is sampled, one of its boundaries is drawn, and 8 rollouts go on from
there: four with one more episode, four that answer at once, with the advantage `termination`; ``to the end``: four that
think on until they end. All have 12,000 rollouts, prefixes counted, and ``equal episodes`` six times as many, which
have about as many episodes as those of ``outcome``. The step size is the one of 2, 4, 6 and 8 with the least mean
regret on three other seeds, for each (``--rates``). The reward is J itself.

Reported after training, over 2,000 thoughts a seed: success at the end of the thought, episodes used, the share of
those that are words alone, the normalised regret (`statistics/thought_regret`) over 12 episodes, and the regret against
the best: the mean over these episodes of J* - J, where J* = (j + 1) / 8 after j episodes is the success of the policy
that tests another candidate in each. That policy has the normalised regret .260, the least that can be reached.
"""

import argparse
import bisect
import itertools
import json

import numpy as np

from posttrain.components.advantages.termination import Termination
from posttrain.components.rollouts import Continued
from posttrain.statistics.intervals import mean
from posttrain.statistics.thought_regret import normalised_regret
from posttrain.types import Batch, Group, Score, Segment, Task, Trajectory

SLOTS, MOST = 8, 12
WORDS, STOP = SLOTS, SLOTS + 1
N = 8
ARMS = {
    "untrained": (0.0, 0, 0),
    "outcome": (2.0, MOST, 12_000),
    "outcome and progress": (8.0, MOST, 12_000),
    "progress": (6.0, MOST, 12_000),
    "prefixes": (8.0, 1, 12_000),
    "prefixes, equal episodes": (8.0, 1, 72_000),
    "prefixes, to the end": (4.0, MOST, 12_000),
}
"""Step size, most episodes of a rollout after its prefix, and rollouts."""
WEIGHTS = {"outcome": (1.0, 0.0), "outcome and progress": (1.0, 1.0), "progress": (0.0, 1.0)}
"""Of whole thoughts: the weights of the outcome and of the progress."""
RATES = (2.0, 4.0, 6.0, 8.0)
CHOSEN_BY = (97, 98, 99)
"""The seeds by which step sizes are chosen."""
Choice = tuple[int, int, int]
"""Episodes before, whether the right candidate was found, and the action."""
TASK = Task(key="slots", prompt="Which one?")


class Thoughts:
    """The policy's table, and thoughts that are drawn from it."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate = rate
        self.rng = np.random.Generator(np.random.Philox(key=[seed, 39]))
        self.logits = np.zeros((MOST, 2, SLOTS + 2))
        self.logits[:, :, WORDS] = np.log(SLOTS + 1)

        self.p = np.zeros_like(self.logits)
        self.learn([])

    def further(self, start: list[int], right: int, most: int) -> tuple[list[int], list[Choice]]:
        """A thought from its first episodes on, and the choices that were made."""
        episodes = list(start)
        choices: list[Choice] = []
        found = int(right in episodes)
        while len(episodes) < MOST and len(choices) < most:
            below = self.below[len(episodes)][found]
            action = min(bisect.bisect_right(below, self.rng.random()), STOP)
            choices.append((len(episodes), found, action))
            if action == STOP:
                break
            episodes.append(action)
            found = int(found or action == right)
        return episodes, choices

    def learn(self, rows: list[tuple[list[Choice], list[float]]]) -> None:
        """A gradient step on choices with the advantage of each, by the mean over rollouts."""
        if rows:
            change = np.zeros_like(self.logits)
            for choices, own in rows:
                for (episodes, found, action), advantage in zip(choices, own, strict=True):
                    change[episodes, found] -= advantage * self.p[episodes, found]
                    change[episodes, found, action] += advantage
            self.logits += self.rate * change / len(rows)
        p = np.exp(self.logits - self.logits.max(-1, keepdims=True))
        self.p = p / p.sum(-1, keepdims=True)
        self.below = np.cumsum(self.p, -1).tolist()


def success(episodes: list[int], right: int) -> float:
    """J: the probability that an answer is right."""
    tested = {action for action in episodes if action < SLOTS}
    return 1.0 if right in tested else 1.0 / (SLOTS - len(tested))


def rollout(value: float, sample: int, at_once: bool) -> Trajectory:
    """A rollout of one token with a score."""
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, logp=np.zeros(1, np.float32))
    score = Score(value=value, status="ok" if value else "wrong")
    facts = (Continued(prefix_tokens=0, at_once=at_once),)
    return Trajectory(task=TASK, segments=(segment,), stop_reason="stop", sample=sample, score=score, facts=facts)


def advantages(rewards: list[float], at_once: list[bool]) -> list[float]:
    """Those of the component for a group."""
    rows = tuple(rollout(value, i, own) for i, (value, own) in enumerate(zip(rewards, at_once, strict=True)))
    rewards_T = tuple(np.array([value], np.float32) for value in rewards)
    batch = Batch(groups=(Group(trajectories=rows, key="slots"),), token_rewards=rewards_T)
    return [float(own[0]) for own in Termination()({}, batch)[1].advantages]


def progress(episodes: list[int], right: int, count: int) -> list[float]:
    """Of each of the first `count` choices of a thought: J after it minus J before it, 0 for the end of the thought."""
    curve = [success(episodes[:j], right) for j in range(len(episodes) + 1)]
    return [after - before for before, after in itertools.pairwise([*curve, curve[-1]])][:count]


def whole_step(policy: Thoughts, right: int, weights: tuple[float, float]) -> None:
    """GRPO on whole thoughts, and the progress of each episode."""
    outcome, alpha = weights
    drawn = [policy.further([], right, MOST) for _ in range(N)]
    rewards = np.array([success(episodes, right) for episodes, _ in drawn])
    policy.learn(
        [
            (choices, [outcome * float(a) + alpha * r for r in progress(episodes, right, len(choices))])
            for (episodes, choices), a in zip(drawn, rewards - rewards.mean(), strict=True)
        ]
    )


def prefix_step(policy: Thoughts, right: int, most: int) -> None:
    """MRT from a prefix of a thought."""
    trace, _ = policy.further([], right, MOST)
    start = trace[: int(policy.rng.integers(0, min(len(trace), MOST - 1) + 1))]
    on = [policy.further(start, right, most) for _ in range(N // 2)]
    rows = [*on, *((start, []) for _ in range(N - N // 2))]
    rewards = [success(episodes, right) for episodes, _ in rows]
    own = advantages(rewards, [i >= N // 2 for i in range(N)])
    policy.learn([(choices, [a] * len(choices)) for (_, choices), a in zip(on, own, strict=False)])


def trained(arm: str, seed: int, rate: float | None = None) -> Thoughts:
    """A policy after as many rollouts as the others have."""
    usual, most, rollouts = ARMS[arm]
    policy = Thoughts(usual if rate is None else rate, seed)
    for _ in range(rollouts // (N if arm in WEIGHTS else N + 1)):
        right = int(policy.rng.integers(SLOTS))
        if arm in WEIGHTS:
            whole_step(policy, right, WEIGHTS[arm])
        else:
            prefix_step(policy, right, most)
    return policy


def measured(policy: Thoughts, thoughts: int = 2000) -> tuple[float, float, float, float, float]:
    """Success, episodes, share of words alone, normalised regret, and regret against the best."""
    ends, lengths, words, regrets, behind = [], [], [], [], []
    best = np.minimum(1.0, (np.arange(1, MOST + 1) + 1) / SLOTS)
    for i in range(thoughts):
        right = i % SLOTS
        episodes, _ = policy.further([], right, MOST)
        curve = [success(episodes[:j], right) for j in range(1, len(episodes) + 1)]
        ends.append(success(episodes, right))
        lengths.append(len(episodes))
        words.append(sum(action == WORDS for action in episodes))
        regrets.append(normalised_regret(range(1, len(episodes) + 1), curve, MOST))
        held = [*curve, *[success(episodes, right)] * (MOST - len(curve))]
        behind.append(float(np.mean(best - held)))
    return (
        float(np.mean(ends)),
        float(np.mean(lengths)),
        float(np.sum(words) / np.sum(lengths)),
        float(np.mean(regrets)),
        float(np.mean(behind)),
    )


def main() -> None:
    """Print the table, or the regret of each step size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", action="store_true", help="Instead, the normalised regret of each step size.")
    given = parser.parse_args()
    if given.rates:
        for arm in [name for name, (rate, _, _) in ARMS.items() if rate]:
            found = {
                rate: round(float(np.mean([measured(trained(arm, seed, rate))[3] for seed in CHOSEN_BY])), 4)
                for rate in RATES
            }
            print(json.dumps({"arm": arm, "regret": found}), flush=True)
        return
    seeds = range(given.seeds)
    table = []
    for arm in ARMS:
        rows = [measured(trained(arm, seed)) for seed in seeds]
        own = [mean(list(values)) for values in zip(*rows, strict=True)]
        table.append([arm, *(f"{m.value:.3f} [{m.interval.low:.3f}, {m.interval.high:.3f}]" for m in own)])
    columns = ["trained by", "success", "episodes", "share of words alone", "normalised regret", "against the best"]
    print(json.dumps({"columns": columns, "table": table}))


if __name__ == "__main__":
    main()
