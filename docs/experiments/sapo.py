"""Nodes that share texts, as tables: how much of a batch should be of others. Sheet of row 103 (arXiv:2509.08721).

Four nodes, each with a table of logits: three families of 20 questions, 12 answers each, one of them right. Each node
begins with random logits, of which those of one family (of none for the fourth) lean to the right answers. A round:
each node answers 8 questions that it draws, 8 times each; it learns from I groups of its own and J of others, 8 in all,
by one step of the policy gradient on advantages in units of the group's std, the mean over its tokens (one an answer).
300 rounds; the reward of a round is the expected one over all nodes and questions.

    8/0, 6/2, 4/4, 2/6    I and J; of others those with an advantage, drawn uniformly
    garbage               a fifth node that shares random answers and learns nothing; with and without the filter of
                          groups without an advantage (then any are drawn)

    python docs/experiments/sapo.py --seeds 5
    python docs/experiments/sapo.py --seeds 5 --features 24

In a table what one question teaches changes nothing about another. With ``--features`` a question is a random vector of
length 1, and logits are its products with a matrix that all questions of a node share.
"""

import argparse
import json

import numpy as np

from posttrain.statistics.intervals import mean

NODES, FAMILIES, QUESTIONS, ANSWERS = 4, 3, 20, 12
DRAWS, BATCH, ROUNDS, RATE = 8, 8, 300, 6.0


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def run(
    own: int, seed: int, *, garbage: int = 0, filtered: bool = True, features: int = 0, rate: float = RATE
) -> dict[str, float]:
    """Cumulative expected reward, and how much it moves from round to round."""
    rng = np.random.default_rng(seed)
    count = FAMILIES * QUESTIONS
    right_Q = rng.integers(0, ANSWERS, count)
    lean = np.zeros((NODES, count, ANSWERS))
    for node in range(min(NODES, FAMILIES)):
        mine = np.arange(node * QUESTIONS, (node + 1) * QUESTIONS)
        lean[node, mine, right_Q[mine]] = 2.0
    if features:
        inputs_QF = rng.normal(0.0, 1.0, (count, features))
        inputs_QF /= np.linalg.norm(inputs_QF, axis=1, keepdims=True)
        weights = rng.normal(0.0, 1.0, (NODES, features, ANSWERS)) + np.einsum("qf,nqa->nfa", inputs_QF, lean)
    else:
        inputs_QF = np.eye(count)
        weights = rng.normal(0.0, 1.0, (NODES, count, ANSWERS)) + lean
    rewards = []
    for _ in range(ROUNDS):
        logits = np.einsum("qf,nfa->nqa", inputs_QF, weights) if features else weights
        asked = rng.integers(0, count, (NODES + garbage, BATCH))
        written = []
        for node in range(NODES + garbage):
            for question in asked[node]:
                p = softmax(logits[node, question]) if node < NODES else np.full(ANSWERS, 1.0 / ANSWERS)
                answers = rng.choice(ANSWERS, DRAWS, p=p)
                written.append((node, int(question), answers, (answers == right_Q[question]).astype(float)))
        for node in range(NODES):
            mine = [w for w in written if w[0] == node][:own]
            foreign = [w for w in written if w[0] != node and (not filtered or np.ptp(w[3]) > 0)]
            taken = rng.permutation(len(foreign))[: BATCH - own]
            batch = mine + [foreign[i] for i in taken]
            step = np.zeros((count, ANSWERS))
            for _, question, answers, reward in batch:
                advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-8)
                p = softmax(logits[node, question])
                for answer, a in zip(answers, advantage, strict=True):
                    step[question] -= a * p
                    step[question, answer] += a
            weights[node] += rate * (inputs_QF.T @ step if features else step) / (DRAWS * max(len(batch), 1))
        logits = np.einsum("qf,nfa->nqa", inputs_QF, weights) if features else weights
        rewards.append(float(softmax(logits)[:, np.arange(count), right_Q].mean()))
    moves = np.diff(np.array(rewards))
    return {"sum": float(np.sum(rewards)), "last": rewards[-1], "moves": 1000 * float(np.std(moves[-100:]))}


def said(values: np.ndarray, digits: int) -> str:
    """A mean with its 95 % interval."""
    found = mean(values)
    return f"{found.value:.{digits}f} [{found.interval.low:.{digits}f}, {found.interval.high:.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", type=int, default=0, help="Of a question; 0 is a table.")
    parser.add_argument("--rate", type=float, default=RATE)
    given = parser.parse_args()
    seeds = range(given.seeds)
    arms = {
        "8/0": {"own": 8},
        "6/2": {"own": 6},
        "4/4": {"own": 4},
        "2/6": {"own": 2},
        "4/4, without the filter": {"own": 4, "filtered": False},
        "4/4, two nodes of garbage": {"own": 4, "garbage": 2},
        "4/4, garbage, without the filter": {"own": 4, "garbage": 2, "filtered": False},
    }
    table, alone = [], np.zeros(given.seeds)
    for name, settings in arms.items():
        found = [run(seed=seed, features=given.features, rate=given.rate, **settings) for seed in seeds]
        sums, last, moves = (np.array([one[column] for one in found]) for column in ("sum", "last", "moves"))
        alone = sums if name == "8/0" else alone
        against = "" if name == "8/0" else said(sums - alone, 1)
        table.append([name, said(sums, 1), against, said(last, 3), said(moves, 2)])
    names = ["own/others", "summed reward of 300 rounds", "against 8/0, by seed", "reward at the end"]
    names.append("std of its moves, last 100, 1/1000")
    print(json.dumps({"columns": names, "table": table}, indent=1))


if __name__ == "__main__":
    main()
