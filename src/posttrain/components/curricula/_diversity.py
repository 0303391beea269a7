"""How much the completions of one task differ: distinct 3-grams, and one minus self-BLEU.

Source: MMR1, arXiv:2509.21268, section 3, and its released code; BLEU after Papineni et al. 2002. Tokens are those that
were sampled, without padding, which the release counts as text.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from posttrain.types import IntArray

FLOOR = 0.1
"""Matches of an order that has none, in the precision of BLEU, as in the release."""
ORDERS = (1, 2, 3)


def ngrams(token_ids: IntArray, order: int) -> "Counter[tuple[int, ...]]":
    """How often each n-gram is in a text."""
    ids = token_ids.tolist()
    return Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))


def distinct(texts: Sequence[IntArray]) -> float:
    """Distinct 3-grams of all texts over all of them; 0 where there is none."""
    pooled: Counter[tuple[int, ...]] = sum((ngrams(ids, 3) for ids in texts), Counter())
    return len(pooled) / pooled.total() if pooled else 0.0


def unlike(texts: Sequence[IntArray]) -> float:
    """One minus the mean BLEU of each text against the others: 0 for texts that are all the same, at most 1."""
    if len(texts) < 2:
        return 0.0
    grams = [{order: ngrams(ids, order) for order in ORDERS} for ids in texts]
    scores = [
        _bleu(len(ids), grams[i], [(len(other), grams[j]) for j, other in enumerate(texts) if j != i])
        for i, ids in enumerate(texts)
    ]
    return 1.0 - float(np.mean(scores))


Grams = dict[int, "Counter[tuple[int, ...]]"]


def _bleu(length: int, own: Grams, others: Sequence[tuple[int, Grams]]) -> float:
    """BLEU with equal weights of 1-, 2- and 3-grams; orders longer than the text are left out."""
    logs = []
    for order in ORDERS:
        total = own[order].total()
        if not total:
            continue
        most: Counter[tuple[int, ...]] = Counter()
        for _, grams in others:
            most |= grams[order]
        matched = sum(min(number, most[gram]) for gram, number in own[order].items())
        logs.append(np.log(max(matched, FLOOR) / total))
    if not logs:  # an empty text is like the others only where those are empty too
        return float(all(not other for other, _ in others))
    nearest_length = min((abs(other - length), other) for other, _ in others)[1]
    brevity = min(1.0, float(np.exp(1.0 - nearest_length / length)))
    return min(1.0, brevity * float(np.exp(np.mean(logs))))
