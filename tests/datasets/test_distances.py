"""Edit distances are those of the table of all prefixes."""

import random

from posttrain.datasets.distances import edit_distance


def by_the_table(a: str, b: str) -> int:
    """The recurrence of Wagner and Fischer 1974, https://doi.org/10.1145/321796.321811."""
    before = list(range(len(b) + 1))
    for i, own in enumerate(a, start=1):
        now = [i]
        for j, other in enumerate(b, start=1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (own != other)))
        before = now
    return before[-1]


def test_by_hand() -> None:
    cases = {("kitten", "sitting"): 3, ("", "abc"): 3, ("abc", ""): 3, ("", ""): 0, ("a", "a"): 0, ("ab", "ba"): 2}
    for (a, b), distance in cases.items():
        assert edit_distance(a, b) == edit_distance(b, a) == distance


def test_it_is_that_of_the_table() -> None:
    rng = random.Random(0)
    for _ in range(600):
        letters = "ab🙂"[: rng.randint(1, 3)]
        a, b = ("".join(rng.choices(letters, k=rng.choice((0, 1, 2, 7, 33, 70)))) for _ in range(2))
        assert edit_distance(a, b) == by_the_table(a, b), (a, b)
