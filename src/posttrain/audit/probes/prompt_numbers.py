"""Numbers of the prompt as the answer, for tasks whose answer is a number."""

import re
from collections.abc import Iterator
from fractions import Fraction

from posttrain.audit import Probe, Subject

ABOUT = "answers"

MOST = 6
"""Numbers of a prompt that are tried."""


def probes(subject: Subject) -> Iterator[Probe]:
    """Each number alone, unless it is the answer, and all of them in a row."""
    if not re.fullmatch(r"-?[0-9]{1,300}(\.[0-9]+)?", subject.answer):
        return
    numbers = list(dict.fromkeys(re.findall(r"(?<![\w./])\d{1,30}(?:\.\d{1,30})?(?![\w/])", subject.prompt_text)))
    wrong = [number for number in numbers if Fraction(number) != Fraction(subject.answer)][:MOST]
    for number in wrong:
        yield Probe(name=f"{number} of the prompt", text=subject.written(number), expected="unrewarded", of_answer=True)
    if len(numbers) > 1:
        row = " ".join([*numbers[:MOST], wrong[0]] if wrong else [])
        if row:
            yield Probe(name="all of the prompt", text=subject.written(row), expected="unrewarded", of_answer=True)
