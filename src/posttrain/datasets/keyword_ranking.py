"""BM25: documents ranked by the words that they share with a query.

Source: Robertson and Zaragoza 2009, "The probabilistic relevance framework", with the parameters k1 0.9 and b 0.4 that
are usual for passages. idf = log(1 + (N - n + 0.5) / (n + 0.5)).
"""

import math
from collections import Counter
from collections.abc import Sequence

K1, B = 0.9, 0.4


class Ranking:
    """An index of documents, each a list of words."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.counts = [Counter(words) for words in documents]
        self.lengths = [len(words) for words in documents]
        self.mean = sum(self.lengths) / max(len(self.lengths), 1)
        found = Counter(word for own in self.counts for word in own)
        self.idf = {word: math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) for word, n in found.items()}

    def scores(self, query: Sequence[str]) -> list[float]:
        """The score of every document."""
        return [
            sum(self.idf.get(word, 0.0) * self._saturated(own[word], length) for word in query)
            for own, length in zip(self.counts, self.lengths, strict=True)
        ]

    def ranked(self, query: Sequence[str]) -> list[int]:
        """All documents by falling score, of equals the first."""
        scores = self.scores(query)
        return sorted(range(len(scores)), key=lambda i: -scores[i])

    def _saturated(self, count: int, length: int) -> float:
        return count * (K1 + 1) / (count + K1 * (1 - B + B * length / self.mean))
