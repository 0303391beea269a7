"""Orders of documents: one that ignores the query, repeats, numbers out of range, parts."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"
FIELDS = ("order",)


def probes(subject: Subject) -> Iterator[Probe]:
    """Orders that are not the reference, in its notation."""
    numbers = re.findall(r"\d+", subject.answer)
    between = re.search(r"\d+(\D+)\d+", subject.answer)
    if len(numbers) < 2 or between is None:
        return
    count = len(numbers)
    orders = {
        "as given": [str(n) for n in range(1, count + 1)],
        "reversed": numbers[::-1],
        "the first alone": numbers[:1],
        "without the last": numbers[:-1],
        "the first again": [*numbers, numbers[0]],
        "the first for the last": [*numbers[:-1], numbers[0]],
        "a zero": [*numbers[:-1], "0"],
        "one beyond": [*numbers, str(count + 1)],
        "in words": ["one", *numbers[1:]],
    }
    seen = [numbers]
    for name, order in orders.items():
        if order not in seen:
            seen.append(order)
            text = subject.written(between[1].join(order))
            yield Probe(name=name, text=text, expected="unrewarded", of_answer=True)
