"""Majority vote among several answers to one question.

Source: self-consistency, Wang et al. 2022, arXiv:2203.11171; weighed by stated confidence, Damani et al. 2025,
arXiv:2507.16806.
"""

from collections.abc import Sequence


def vote(answers: Sequence[str | None], weights: Sequence[float] | None = None) -> int | None:
    """Index of the first of the answers with the largest sum of weights (1 each when left out).

    The first wins a tie. None is not a vote; the result is None without votes.
    """
    weighed = zip(answers, weights if weights is not None else [1.0] * len(answers), strict=True)
    totals: dict[str, float] = {}
    for answer, weight in weighed:
        if answer is not None:
            totals[answer] = totals.get(answer, 0.0) + weight
    return answers.index(max(totals, key=totals.__getitem__)) if totals else None
