"""Which past cases to show for a query: by likeness, by a classifier of usefulness, or by values of a kernel.

Source: Memento (AgentFly), arXiv:2508.16153, and its release. A case is a query, the plan that was followed, and
whether it was right. Read by likeness: the cases of highest cosine. Read by a learned selector: the vectors of the case
(query and plan) and of the query, one after the other, through Linear, 512 ReLU, dropout 0.2, Linear to 2; cases are
sorted by the probability of class 1. It is trained on rows of a log, one for each case that was shown, whose label is
whether the answer was right: cross-entropy with class weights 1 and max(1, wrong / right), as a mean over weights, and
none where a class is missing; AdamW, decay 0.01, batches of 32, 3 epochs, a warm-up of 6 %, gradients cut to norm 1. A
tenth of each class is held out; of the epochs the one of highest AUC there is kept, or of F1 where a class is missing.

By values: Q(s, c) = sum_i k(s, s_i) r_i / sum_i k(s, s_i) over the outcomes r_i that followed case c in states s_i;
mu(c) = softmax(Q / alpha), and V = alpha log sum exp(Q / alpha). Episodes have one step, so a target is its reward.

Differs: vectors are given (`vector_of`: hashed triples of characters) and stay fixed, where the release trains the
encoder with a learning rate of 2e-5; this one is 1e-3, and the product of both vectors is a further input. The kernel
is exp((cosine - 1) / width), and each case has one more outcome of 0 with weight `PRIOR`, which values cases without
any. The release has no values: they are the paper's theory.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from posttrain.statistics.calibration import auroc

Array = np.ndarray[Any, np.dtype[np.float64]]
SIZE: Final = 256
"""D of `vector_of`."""
PRIOR: Final = 0.01
BATCH, EPOCHS, DECAY, WARM_UP, CUT, DROPOUT, HELD = 32, 3, 0.01, 0.06, 1.0, 0.2, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task that was done."""

    query: str
    plan: str
    right: bool
    key_D: Array
    """Vector of the query, of length 1."""
    both_D: Array
    """Vector of query and plan, of length 1."""


def case_of(query: str, plan: str, right: bool) -> Case:
    """A case with the vectors of `vector_of`."""
    both_D = vector_of(f"[CASE] {query} [PLAN] {plan}")
    return Case(query=query, plan=plan, right=right, key_D=vector_of(query), both_D=both_D)


def vector_of(text: str) -> Array:
    """[D] counts of hashed triples of characters, of length 1; 0 for an empty text."""
    vector_D: Array = np.zeros(SIZE)
    padded = f" {text.lower()} "
    for place in range(len(padded) - 2 if text else 0):
        code = zlib.crc32(padded[place : place + 3].encode())
        vector_D[code % SIZE] += 1.0 if code >> 31 else -1.0
    length = float(np.linalg.norm(vector_D))
    return vector_D / length if length else vector_D


def likeness(query_D: Array, cases: Sequence[Case]) -> Array:
    """[C] cosine of a query with the query of each case."""
    return np.array([float(case.key_D @ query_D) for case in cases], np.float64)


def features(query_D: Array, cases: Sequence[Case]) -> Array:
    """[C, 3D] vectors of the case and of the query, and their product, which is scaled to entries like theirs."""
    both_CD = np.array([case.both_D for case in cases])
    query_CD = np.broadcast_to(query_D, both_CD.shape)
    scale = np.sqrt(both_CD.shape[1])
    found: Array = np.concatenate([both_CD, query_CD, scale * both_CD * query_CD], axis=1)
    return found


def best(score_C: Array, k: int) -> list[int]:
    """Places of the k highest scores, the highest first; of equals the earlier one."""
    return [int(place) for place in np.argsort(-score_C, kind="stable")[:k]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Outcomes by case, and what they make of its value."""

    width: float = 0.2
    """Of the kernel, in units of cosine."""
    alpha: float = 0.1
    """Temperature, in units of reward."""
    outcomes: dict[int, list[tuple[Array, float]]] = field(default_factory=dict)
    """By the place of the case: vector of the query, and reward."""

    def stored(self, place: int, query_D: Array, reward: float) -> None:
        """Add an outcome of a case that was shown."""
        self.outcomes.setdefault(place, []).append((query_D, reward))

    def q(self, query_D: Array, count: int) -> Array:
        """[C] value of each of `count` cases for a query."""
        found: Array = np.zeros(count)
        for place, own in self.outcomes.items():
            weight_I = np.exp((np.array([vector_D @ query_D for vector_D, _ in own]) - 1.0) / self.width)
            rewards_I = np.array([reward for _, reward in own])
            found[place] = weight_I @ rewards_I / (weight_I.sum() + PRIOR)
        return found

    def chances(self, q_C: Array) -> Array:
        """[C] probability mu of each case."""
        power_C = np.exp((q_C - q_C.max()) / self.alpha)
        shares_C: Array = power_C / power_C.sum()
        return shares_C

    def value(self, q_C: Array) -> float:
        """V of a state."""
        top = float(q_C.max())
        return top + self.alpha * float(np.log(np.exp((q_C - top) / self.alpha).sum()))

    def drawn(self, q_C: Array, k: int, rng: np.random.Generator) -> list[int]:
        """Places of k different cases, drawn one after the other by mu."""
        return best(q_C / self.alpha + rng.gumbel(size=len(q_C)), k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Two layers over the vectors of case and query."""

    w1_EH: Array
    b1_H: Array
    w2_H2: Array
    b2_2: Array

    def chance(self, x_NE: Array) -> Array:
        """[N] probability that a case is useful for a query."""
        logit_N2 = np.maximum(x_NE @ self.w1_EH + self.b1_H, 0.0) @ self.w2_H2 + self.b2_2
        return np.asarray(1.0 / (1.0 + np.exp(logit_N2[:, 0] - logit_N2[:, 1])), np.float64)

    def scores(self, query_D: Array, cases: Sequence[Case]) -> Array:
        """[C] the same for each case."""
        return self.chance(features(query_D, cases))

    @property
    def parts(self) -> tuple[Array, ...]:
        """Weights and biases."""
        return self.w1_EH, self.b1_H, self.w2_H2, self.b2_2


def new_selector(inputs: int, rng: np.random.Generator, hidden: int = 512) -> Selector:
    """Weights drawn uniformly up to 1 / sqrt(inputs of the layer)."""
    sizes = ((inputs, hidden), (hidden,), (hidden, 2), (2,))
    reach = (inputs, inputs, hidden, hidden)
    drawn = [rng.uniform(-1, 1, size) / np.sqrt(n) for size, n in zip(sizes, reach, strict=True)]
    return Selector(w1_EH=drawn[0], b1_H=drawn[1], w2_H2=drawn[2], b2_2=drawn[3])


def class_weights(y_N: np.ndarray) -> tuple[float, float]:
    """Of wrong and right rows: 1 and max(1, wrong / right), or 1 and 1 where a class is missing."""
    right = int(y_N.sum())
    wrong = len(y_N) - right
    return 1.0, max(1.0, wrong / right) if right and wrong else 1.0


def loss_of(
    selector: Selector, x_NE: Array, y_N: np.ndarray, weights: tuple[float, float], kept_NH: Array | None = None
) -> tuple[float, tuple[Array, ...]]:
    """Weighted mean cross-entropy, and its gradients by the parts; `kept_NH` is the factor of dropout."""
    hidden_NH = np.maximum(x_NE @ selector.w1_EH + selector.b1_H, 0.0)
    kept_NH = np.ones_like(hidden_NH) if kept_NH is None else kept_NH
    logit_N2 = (hidden_NH * kept_NH) @ selector.w2_H2 + selector.b2_2
    logp_N2 = logit_N2 - np.logaddexp(logit_N2[:, 0], logit_N2[:, 1])[:, None]
    y_N = y_N.astype(int)
    weight_N = np.array(weights)[y_N]
    weight_N = weight_N / weight_N.sum()
    loss = -float(weight_N @ logp_N2[np.arange(len(y_N)), y_N])
    error_N2 = (np.exp(logp_N2) - np.eye(2)[y_N]) * weight_N[:, None]
    back_NH = (error_N2 @ selector.w2_H2.T) * kept_NH * (hidden_NH > 0)
    return loss, (x_NE.T @ back_NH, back_NH.sum(0), (hidden_NH * kept_NH).T @ error_N2, error_N2.sum(0))


def fitted(x_NE: Array, y_N: np.ndarray, seed: int, lr: float = 1e-3, epochs: int = EPOCHS) -> Selector:
    """A selector trained on the rows of a log; the untrained one without any."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    selector = new_selector(x_NE.shape[1], rng)
    held = _held_out(y_N, rng)
    train = np.setdiff1d(np.arange(len(y_N)), held)
    weights, total = class_weights(y_N[train]), epochs * -(-len(train) // BATCH)
    parts = [part.copy() for part in selector.parts]
    moments = [(np.zeros_like(part), np.zeros_like(part)) for part in parts]
    chosen, best_score, step = selector, -1.0, 0
    for _ in range(epochs):
        order = rng.permutation(train)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            kept_NH = (rng.random((len(rows), parts[1].size)) >= DROPOUT) / (1 - DROPOUT)
            _, gradients = loss_of(_selector(parts), x_NE[rows], y_N[rows], weights, kept_NH)
            step += 1
            _update(parts, moments, gradients, step, lr * min(1.0, step / max(1.0, WARM_UP * total)))
        current = _selector([part.copy() for part in parts])
        score = _quality(current.chance(x_NE[held]), y_N[held]) if len(held) else float(step)
        if score > best_score:
            chosen, best_score = current, score
    return chosen


def _selector(parts: Sequence[Array]) -> Selector:
    return Selector(w1_EH=parts[0], b1_H=parts[1], w2_H2=parts[2], b2_2=parts[3])


def _held_out(y_N: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A tenth of the rows of each class."""
    own = [rng.permutation(np.flatnonzero(y_N == label)) for label in (0, 1)]
    return np.concatenate([rows[: int(HELD * len(rows))] for rows in own])


def _update(
    parts: list[Array], moments: list[tuple[Array, Array]], gradients: Sequence[Array], step: int, lr: float
) -> None:
    """One update of AdamW, in place."""
    norm = float(np.sqrt(sum(float((g * g).sum()) for g in gradients)))
    for part, (first, second), gradient in zip(parts, moments, gradients, strict=True):
        own = gradient * min(1.0, CUT / (norm + 1e-6))
        first += 0.1 * (own - first)
        second += 0.001 * (own * own - second)
        part *= 1 - lr * DECAY
        part -= lr * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)


def _quality(chance_N: Array, y_N: np.ndarray) -> float:
    """AUC, or F1 at one half where a class is missing."""
    area = auroc(chance_N.tolist(), (y_N == 1).tolist())
    if area is not None:
        return area
    called = chance_N > 0.5
    hits = int((called & (y_N == 1)).sum())
    return 2 * hits / max(1, int(called.sum()) + int((y_N == 1).sum()))
