"""Where a planted subsequence is complete in a text."""


def completed_at(word: str, text: str) -> int | None:
    """Number of letters of a text, spaces left out, until those of the word have appeared in order; None if they do
    not.
    """
    left = list(word)
    for count, letter in enumerate((symbol for symbol in text if not symbol.isspace()), start=1):
        if letter == left[0]:
            left.pop(0)
        if not left:
            return count
    return None


def reward_of(word: str, horizon: int, text: str) -> int:
    """Letters of the horizon that are left once the word is complete; 0 where it is not."""
    found = completed_at(word, text)
    return max(0, horizon - found) if found is not None else 0
