"""What a conjecturer and a prover learn from: seeds with lemmas, statements near the limit, and weights.

Source: STP, arXiv:2502.00212, and its release (kfdong/STP at 2b5fe8b, RL_utils.py).

M targets, N conjectures, D width of an embedding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from posttrain.types import FloatArray

Rng = np.random.Generator
FREE = ""
"""In place of a lemma where there is none."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What a conjecture is asked for with."""

    statement: str
    proof: str
    lemma: str = FREE


@dataclass(frozen=True, kw_only=True)
class Conjecture:
    """A statement that was written, and the results of its proofs."""

    statement: str
    seed: Seed
    rate: float = 0.0
    """Share of its proofs that are correct."""
    proofs: tuple[str, ...] = ()
    """Distinct correct ones."""
    invoked: bool = False
    """Whether a correct proof invokes the lemma of the seed."""
    weight: float = 1.0

    @property
    def ratio(self) -> float:
        """Characters of the shortest proof over those of the statement; low for trivial statements."""
        return min(map(len, self.proofs)) / len(self.statement)


def seeds_of(
    proved: Mapping[str, tuple[float, str, Sequence[str]]], targets: int, above: float, rng: Rng
) -> list[Seed]:
    """Seeds of the proved targets whose best rate is above a bound, in a drawn order.

    `proved` has rate, proof and lemmas of each. A target is paired with each lemma that its proof invokes, and with
    probability 1/2 with none. A lemma has at most a tenth of `targets` seeds.
    """
    found = []
    for statement, (rate, proof, lemmas) in proved.items():
        if rate > above:
            free = [FREE] if rng.random() < 0.5 else []
            found += [Seed(statement=statement, proof=proof, lemma=lemma) for lemma in [*dict.fromkeys(lemmas), *free]]
    most, counts, kept = max(1, targets // 10), dict[str, int](), []
    for place in rng.permutation(len(found)):
        seed = found[place]
        counts[seed.lemma] = counts.get(seed.lemma, 0) + 1
        if seed.lemma == FREE or counts[seed.lemma] <= most:
            kept.append(seed)
    return kept


def barely_proved(
    conjectures: Sequence[Conjecture], band: tuple[float, float], free: tuple[float, int], rng: Rng
) -> list[Conjecture]:
    """Those with a rate strictly within the band; where no proof invokes the lemma, without it.

    Of the latter there are at most the larger one of `free`: a multiple of the others, and a number.
    """
    inside = [c for c in conjectures if band[0] < c.rate < band[1]]
    kept = [c for c in inside if c.invoked]
    recast = [replace(c, seed=replace(c.seed, lemma=FREE)) for c in inside if not c.invoked]
    most = max(int(free[0] * len(kept)), free[1])
    if len(recast) > most:
        recast = [recast[i] for i in sorted(rng.permutation(len(recast))[:most])]
    return kept + recast


def without_trivial(conjectures: Sequence[Conjecture], quantile: float) -> list[Conjecture]:
    """Those whose ratio of lengths is not below the quantile of the conjectures with the same lemma."""
    by_lemma: dict[str, list[float]] = {}
    for c in conjectures:
        by_lemma.setdefault(c.seed.lemma, []).append(c.ratio)
    bounds = {lemma: float(np.quantile(ratios, quantile)) for lemma, ratios in by_lemma.items()}
    return [c for c in conjectures if c.ratio >= bounds[c.seed.lemma]]


def matched(target_MD: FloatArray, conjecture_ND: FloatArray, cap: float, rng: Rng) -> NDArray[np.float64]:
    """[N] weights that put conjectures where targets are.

    Each target, in a drawn order, gives N / M to the conjecture of the highest cosine whose weight is below the cap.
    One that is full is left out of the comparison, also where all others are opposite.
    """
    weight_N = np.zeros(len(conjecture_ND))
    target_MD, conjecture_ND = _unit(target_MD), _unit(conjecture_ND)
    for place in rng.permutation(len(target_MD)):
        free_N = weight_N < cap
        if not free_N.any():
            break
        cosine_N = np.where(free_N, conjecture_ND @ target_MD[place], -np.inf)
        weight_N[int(cosine_N.argmax())] += len(conjecture_ND) / len(target_MD)
    return weight_N


def proof_weight(proof: str, distinct: int, cost: float) -> float:
    """The weight of a correct proof among the distinct ones of its statement: less for a long one, and for many."""
    return float(np.exp(-cost * len(proof))) / distinct


def _unit(x_ND: FloatArray) -> FloatArray:
    norm_N1 = np.linalg.norm(x_ND, axis=1, keepdims=True)
    return np.asarray(x_ND / np.maximum(norm_N1, 1e-12), np.float32)
