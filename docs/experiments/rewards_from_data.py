"""Four rewards for one reinforcement: from a rule, outcomes, pairs and demonstrations; and best of n by each.

A prompt has 60 answers with 12 features; a true score is linear in them, and the best 12 answers are correct. The
models of the reward are linear in 8 of the 12 features. From the first policy, which is flat, they have 200 answers
with outcomes (cross-entropy), 200 pairs of answers with preferences drawn from the true score, or 100 answers of an
expert (a softmax of twice the score), each preferred to an answer of the policy. The policy then follows 60 exact
gradients of the reward, standardized, less a KL of 0.05. Reported are the probability of a correct answer, and that of
the best of 1, 4 and 16 answers of the first policy by the reward; then the same for 30 pairs. At last 20 items have
2,000 pairs: Kendall's tau of a Bradley-Terry fit with the true score, its calibration error over ten bins, and for the
discriminator how often it prefers an expert's answer to the policy's before and after the reinforcement.

    python docs/experiments/rewards_from_data.py --seeds 5
"""

import argparse
import json
from itertools import combinations

import numpy as np

from posttrain.statistics.intervals import mean

ANSWERS, FEATURES, SEEN, CORRECT, STEPS, RATE, BETA = 60, 12, 8, 12, 60, 3.0, 0.05


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Logistic function."""
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """[A] probabilities."""
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum())


def fitted(input_MD: np.ndarray, target_M: np.ndarray) -> np.ndarray:
    """[D] weights of a logistic regression with a small ridge."""
    weight_D = np.zeros(input_MD.shape[1])
    for _ in range(500):
        weight_D += 0.5 * (input_MD.T @ (target_M - sigmoid(input_MD @ weight_D)) / len(input_MD) - 0.01 * weight_D)
    return weight_D


class World:
    """Answers, what is true of them, and data."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.feature_AD = self.rng.normal(size=(ANSWERS, FEATURES))
        score_A = self.feature_AD @ self.rng.normal(size=FEATURES)
        self.score_A = score_A / score_A.std()
        self.correct_A = (score_A >= np.sort(score_A)[-CORRECT]).astype(float)
        self.known_AD = np.hstack([self.feature_AD[:, :SEEN], np.ones((ANSWERS, 1))])

    def drawn(self, count: int, policy: np.ndarray | None = None) -> np.ndarray:
        """[M] answers of a policy, the flat one by default."""
        return self.rng.choice(ANSWERS, count, p=policy)

    def paired(self, better_M: np.ndarray, worse_M: np.ndarray) -> np.ndarray:
        """[A] rewards of a model of pairs."""
        known_AD = self.known_AD[:, :-1]
        difference_MD = known_AD[better_M] - known_AD[worse_M]
        return np.asarray(known_AD @ fitted(difference_MD, np.ones(len(better_M))))

    def reward(self, kind: str, pairs: int) -> np.ndarray:
        """[A] rewards of all answers."""
        if kind == "rule":
            return self.correct_A
        if kind == "outcomes":
            seen_M = self.drawn(200)
            return np.asarray(self.known_AD @ fitted(self.known_AD[seen_M], self.correct_A[seen_M]))
        if kind == "demonstrations":
            return self.paired(self.drawn(100, softmax(2 * self.score_A)), self.drawn(100))
        first_M, second_M = self.drawn(pairs), self.drawn(pairs)
        wins_M = self.rng.random(pairs) < sigmoid(2 * (self.score_A[first_M] - self.score_A[second_M]))
        return self.paired(np.where(wins_M, first_M, second_M), np.where(wins_M, second_M, first_M))

    def reinforced(self, reward_A: np.ndarray) -> np.ndarray:
        """[A] the last policy."""
        logits, scaled_A = np.zeros(ANSWERS), (reward_A - reward_A.mean()) / (reward_A.std() + 1e-9)
        for _ in range(STEPS):
            policy = softmax(logits)
            gain = scaled_A - BETA * np.log(policy * ANSWERS)
            logits = logits + RATE * policy * (gain - policy @ gain)
        return softmax(logits)

    def best_of(self, reward_A: np.ndarray, n: int) -> float:
        """Probability that the best of n answers of the flat policy is correct."""
        drawn_MN = self.rng.choice(ANSWERS, (4000, n))
        best_M = drawn_MN[np.arange(4000), reward_A[drawn_MN].argmax(1)]
        return float(self.correct_A[best_M].mean())


def measured(seed: int, kind: str, pairs: int = 200) -> list[float]:
    """Correct before and after reinforcement, and of the best of 4 and 16."""
    world = World(seed)
    reward_A = world.reward(kind, pairs)
    policy = world.reinforced(reward_A)
    return [float(policy @ world.correct_A), *(world.best_of(reward_A, n) for n in (1, 4, 16))]


def recovered(seed: int) -> tuple[float, float]:
    """Kendall's tau and calibration error of 20 items from 2,000 pairs."""
    rng = np.random.default_rng(seed)
    score_I = rng.normal(size=20)
    first, second = rng.integers(20, size=2000), rng.integers(20, size=2000)
    wins = rng.random(2000) < sigmoid(score_I[first] - score_I[second])
    found_I = fitted(5 * (np.eye(20)[first] - np.eye(20)[second]), wins.astype(float)) * 5
    pairs = list(combinations(range(20), 2))
    tau = np.mean([np.sign((found_I[i] - found_I[j]) * (score_I[i] - score_I[j])) for i, j in pairs])
    said, true = (np.array([sigmoid(x[i] - x[j]) for i, j in pairs]) for x in (found_I, score_I))
    bins = np.minimum((said * 10).astype(int), 9)
    error = sum((bins == b).mean() * abs(said[bins == b].mean() - true[bins == b].mean()) for b in set(bins))
    return float(tau), float(error)


def gap(seed: int) -> tuple[float, float]:
    """How often the discriminator prefers an expert's answer, before and after reinforcement by it."""
    world = World(seed)
    reward_A = world.reward("demonstrations", 0)
    expert, after = softmax(2 * world.score_A), world.reinforced(reward_A)
    prefers_AA = (reward_A[:, None] > reward_A).astype(float) + 0.5 * (reward_A[:, None] == reward_A)
    return float(expert @ prefers_AA.mean(1)), float(expert @ prefers_AA @ after)


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    arms = {"rule": ("rule", 0), "outcomes": ("outcomes", 0), "200 pairs": ("pairs", 200), "30 pairs": ("pairs", 30)}
    for name, arm in {**arms, "demonstrations": ("demonstrations", 0)}.items():
        results = np.array([measured(seed, *arm) for seed in seeds])
        table.append([name, *(shown(column) for column in results.T)])
    tau, error = np.array([recovered(seed) for seed in seeds]).T
    before, after = np.array([gap(seed) for seed in seeds]).T
    said = f"tau {shown(tau)}, calibration error {shown(error)}; expert preferred {shown(before)}, then {shown(after)}"
    columns = ["reward from", "correct after reinforcement", "best of 1", "best of 4", "best of 16"]
    print(json.dumps({"said": said, "columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
