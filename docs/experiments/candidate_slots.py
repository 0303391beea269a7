"""MRT on slots of candidates: does progress against answering at once make thoughts end sooner at equal accuracy?

    python docs/experiments/candidate_slots.py --seeds 5

Sheet of row 39 (arXiv:2503.07572). One of 8 candidates is right, evenly. An episode of a thought tests a candidate, or
has words alone; a thought has at most 12 episodes and may end before. An answer is a draw from the posterior: right
with J = 1 where the right candidate was tested, else 1 / (number of those not tested), which is exact. The policy is a
table of logits by the number of episodes so far and whether the right one was found; words alone have the probability
one half at first, and nothing remembers which candidates were tested but the number.

``outcome`` is GRPO: 8 thoughts of a question, reward minus the mean of the group. ``progress`` samples one thought,
draws one of its boundaries, and 8 rollouts from there: four with one more episode, four that answer at once, with the
advantage `termination`; ``to the end``: four that think on until they end. All have 12,000 rollouts, prefixes counted,
and ``equal episodes`` six times as many, which have about as many episodes as those of ``outcome``. The step size is
the best of 2, 4, 6 and 8 for each on another seed. The reward is J itself.

Reported after training, over 2,000 thoughts a seed: success at the end of the thought, episodes used, the share of
those that are words alone, and the normalised regret (`statistics/thought_regret`) over 12 episodes.
"""

import argparse
import bisect
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
    "progress": (4.0, 1, 12_000),
    "progress, equal episodes": (4.0, 1, 72_000),
    "to the end": (2.0, MOST, 12_000),
}
"""Step size, most episodes of a rollout after its prefix, and rollouts."""
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

    def further(self, start: list[int], right: int, most: int) -> tuple[list[int], list[tuple[int, int, int]]]:
        """A thought from its first episodes on, and the choices that were made: (episodes, found, action)."""
        episodes = list(start)
        choices: list[tuple[int, int, int]] = []
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

    def learn(self, rows: list[tuple[list[tuple[int, int, int]], float]]) -> None:
        """A gradient step on choices with their advantages, by the mean over rollouts."""
        if rows:
            change = np.zeros_like(self.logits)
            for choices, advantage in rows:
                for episodes, found, action in choices:
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


def outcome_step(policy: Thoughts, right: int) -> None:
    """GRPO on whole thoughts."""
    drawn = [policy.further([], right, MOST) for _ in range(N)]
    rewards = np.array([success(episodes, right) for episodes, _ in drawn])
    policy.learn([(choices, float(a)) for (_, choices), a in zip(drawn, rewards - rewards.mean(), strict=True)])


def prefix_step(policy: Thoughts, right: int, most: int) -> None:
    """MRT from a prefix of a thought."""
    trace, _ = policy.further([], right, MOST)
    start = trace[: int(policy.rng.integers(0, min(len(trace), MOST - 1) + 1))]
    on = [policy.further(start, right, most) for _ in range(N // 2)]
    rows = [*on, *((start, []) for _ in range(N - N // 2))]
    rewards = [success(episodes, right) for episodes, _ in rows]
    own = advantages(rewards, [i >= N // 2 for i in range(N)])
    policy.learn([(choices, a) for (_, choices), a in zip(on, own, strict=False)])


def trained(arm: str, seed: int) -> Thoughts:
    """A policy after as many rollouts as the others have."""
    rate, most, rollouts = ARMS[arm]
    policy = Thoughts(rate, seed)
    for _ in range(rollouts // (N if arm == "outcome" else N + 1)):
        right = int(policy.rng.integers(SLOTS))
        if arm == "outcome":
            outcome_step(policy, right)
        else:
            prefix_step(policy, right, most)
    return policy


def measured(policy: Thoughts, thoughts: int = 2000) -> tuple[float, float, float, float]:
    """Success, episodes, share of words alone, and normalised regret."""
    ends, lengths, words, regrets = [], [], [], []
    for i in range(thoughts):
        right = i % SLOTS
        episodes, _ = policy.further([], right, MOST)
        curve = [success(episodes[:j], right) for j in range(1, len(episodes) + 1)]
        ends.append(success(episodes, right))
        lengths.append(len(episodes))
        words.append(sum(action == WORDS for action in episodes))
        regrets.append(normalised_regret(range(1, len(episodes) + 1), curve, MOST))
    return (
        float(np.mean(ends)),
        float(np.mean(lengths)),
        float(np.sum(words) / np.sum(lengths)),
        float(np.mean(regrets)),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for arm in ARMS:
        rows = [measured(trained(arm, seed)) for seed in seeds]
        own = [mean(list(values)) for values in zip(*rows, strict=True)]
        table.append([arm, *(f"{m.value:.3f} [{m.interval.low:.3f}, {m.interval.high:.3f}]" for m in own)])
    columns = ["trained by", "success", "episodes", "share of words alone", "normalised regret"]
    print(json.dumps({"columns": columns, "table": table}))


if __name__ == "__main__":
    main()
