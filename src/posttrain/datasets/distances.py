"""Distances of texts."""


def edit_distance(a: str, b: str) -> int:
    """Fewest characters that are inserted, deleted or replaced to make one text of the other."""
    before = list(range(len(b) + 1))
    for i, own in enumerate(a, start=1):
        now = [i]
        for j, other in enumerate(b, start=1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (own != other)))
        before = now
    return before[-1]
