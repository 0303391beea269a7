"""The same answer to everything, and the most frequent answer of the data."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"

NUMBERS = ("0", "1", "-1", "2", "10", "100")
TEXTS = ("yes", "no", "true", "false", "none", "unknown")


def probes(subject: Subject) -> Iterator[Probe]:
    """Constants of the kind of the reference answer that differ from it."""
    constants = NUMBERS if re.fullmatch(r"-?[0-9./,]+", subject.answer) else TEXTS
    named = {f"always {text}": text for text in constants} | {"the most frequent answer": subject.frequent}
    for name, text in named.items():
        if text and text.casefold() != subject.answer.casefold():
            yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
