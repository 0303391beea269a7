"""Ages of tokens at the step that learns from them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Ages in steps of what a batch is learned from."""

    spans: Sequence[Sequence[tuple[int, int]]]
    """By group: steps whose weights drew tokens, and the number of tokens."""
    step: int
    eta: int

    def metrics(self) -> dict[str, float]:
        """Mean over tokens, the most, and the share of groups with a token older than eta."""
        ages = [(self.step - drew, tokens) for own in self.spans for drew, tokens in own]
        oldest = [max((self.step - drew for drew, _ in own), default=0) for own in self.spans]
        total = sum(tokens for _, tokens in ages)
        return {
            "staleness": sum(age * tokens for age, tokens in ages) / total if total else 0.0,
            "staleness_max": float(max(oldest, default=0)),
            "beyond_eta": sum(age > self.eta for age in oldest) / len(oldest) if oldest else 0.0,
        }
