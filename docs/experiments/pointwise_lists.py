"""Does a reward for the ranking of all documents order scores that are given one at a time, and do ties matter?

    python docs/experiments/pointwise_lists.py --seeds 5

Sheet of row 73 (arXiv:2509.00520). A table: 20 queries with 6 documents, one or two of them relevant and three that
look like it, each with a softmax over the scores 0 to 10, uniform at the start, or 98 % on the score 5. 8 scores of
every document are drawn in a step (960 in all); the advantage is within a document, (r - mean) / (std + 1e-6), and a
gradient step has the size 2.

``pointwise`` rewards 1 - |s - 10 label| / 10 with coarse labels: 1 for relevant documents and one that looks
like it, 0.5 for the other two, 0 for the rest. The others reward every score of a list with the reciprocal rank of its
relevant document that ranks first, equal scores counted against it (pessimistic) or for it, with no or three drawn
lists more, or with every score in its document's place in all lists. Reported are the mean reciprocal rank of the
likeliest scores (pessimistic) after 20 and after 150 steps, the share of documents whose likeliest score another one of
the query has, and the share of queries in which a relevant and another document share the highest one.
"""

import argparse
import json

import numpy as np

from posttrain.grading.ranked_lists import ranked, reciprocal_rank
from posttrain.statistics.intervals import mean

QUERIES, DOCUMENTS, GROUP, STEPS, EARLY, RATE = 20, 6, 8, 150, 20, 2.0
ARMS = {
    "pointwise, coarse labels": ("pointwise", 0, 0.0),
    "lists, ties optimistic": ("optimistic", 3, 0.0),
    "lists, ties pessimistic": ("pessimistic", 3, 0.0),
    "the same without drawn lists": ("pessimistic", 0, 0.0),
    "the same, each score in all lists": ("pessimistic", -1, 0.0),
    "from 5 for all: optimistic": ("optimistic", 3, 6.0),
    "from 5 for all: pessimistic": ("pessimistic", 3, 6.0),
}
"""The reward, lists that are drawn for each rollout (-1: each score takes its place in all lists), and the logit of the
score 5 at the start."""


def queries(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """[queries, documents] relevance and coarse labels."""
    relevant = np.zeros((QUERIES, DOCUMENTS), bool)
    labels = np.zeros((QUERIES, DOCUMENTS))
    for own, label in zip(relevant, labels, strict=True):
        order = rng.permutation(DOCUMENTS)
        count = int(rng.integers(1, 3))
        own[order[:count]] = True
        label[order[: count + 1]] = 1.0
        label[order[count + 1 : count + 3]] = 0.5
    return relevant, labels


def reciprocal_ranks(scores: np.ndarray, relevant: np.ndarray, optimistic: bool) -> np.ndarray:
    """[queries, lists] of scores [queries, documents, lists]."""
    best = np.where(relevant[:, :, None], scores, -1).max(1, keepdims=True)
    ahead = scores > best if optimistic else scores >= best
    found: np.ndarray = 1.0 / (1.0 + (ahead & ~relevant[:, :, None]).sum(1))
    own = ranked(scores[0, :, 0].tolist(), relevant[0].tolist(), optimistic=optimistic)
    assert found[0, 0] == reciprocal_rank(own, DOCUMENTS), "the same as the reward's own rule"
    return found


def rewards(rng: np.random.Generator, scores: np.ndarray, relevant: np.ndarray, ties: str, more: int) -> np.ndarray:
    """[queries, documents, rollouts] mean over the lists of each rollout."""
    if more < 0:
        found = np.zeros(scores.shape)
        for document in range(DOCUMENTS):
            for j in range(GROUP):
                lists = scores.copy()
                lists[:, document, :] = scores[:, document, j : j + 1]
                found[:, document, j] = reciprocal_ranks(lists, relevant, ties == "optimistic").mean(-1)
        return found
    total = np.zeros(scores.shape)
    for number in range(more + 1):
        order = np.argsort(rng.random(scores.shape), 2) if number else np.broadcast_to(np.arange(GROUP), scores.shape)
        value = reciprocal_ranks(np.take_along_axis(scores, order, 2), relevant, ties == "optimistic")
        own = np.zeros(scores.shape)
        np.put_along_axis(own, order, np.broadcast_to(value[:, None, :], scores.shape), 2)
        total += own
    return total / (more + 1)


def one(seed: int, ties: str, more: int, five: float) -> list[float]:
    """The numbers of a row, for a seed."""
    rng = np.random.default_rng([seed, 73])
    relevant, labels = queries(rng)
    logits, found = np.zeros((QUERIES, DOCUMENTS, 11)), []
    logits[..., 5] = five
    for step in range(1, STEPS + 1):
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        below = p.cumsum(-1)[:, :, None, :]
        scores = (rng.random((QUERIES, DOCUMENTS, GROUP, 1)) > below).sum(-1).clip(0, 10)
        if ties == "pointwise":
            given = 1.0 - np.abs(scores - 10 * labels[:, :, None]) / 10
        else:
            given = rewards(rng, scores, relevant, ties, more)
        advantage = (given - given.mean(-1, keepdims=True)) / (given.std(-1, ddof=1, keepdims=True) + 1e-6)
        advantage[np.ptp(given, axis=-1) < 1e-12] = 0.0
        chosen = np.eye(11)[scores] - p[:, :, None, :]
        logits += RATE * (advantage[..., None] * chosen).mean(2)
        if step in (EARLY, STEPS):
            found.append(float(reciprocal_ranks(logits.argmax(-1)[..., None], relevant, False).mean()))
    top = logits.argmax(-1)
    tied = (top[:, :, None] == top[:, None, :]).sum(-1) > 1
    best = [np.where(mask, top, -1).max(1) for mask in (relevant, ~relevant)]
    return [*found, float(tied.mean()), float((best[0] == best[1]).mean())]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for arm, settings in ARMS.items():
        row = [arm]
        for values in zip(*(one(seed, *settings) for seed in seeds), strict=True):
            own = mean(list(values))
            row.append(f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]")
        table.append(row)
    columns = ["reward", f"MRR after {EARLY} steps", f"after {STEPS}", "documents that tie", "ties for the first rank"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
