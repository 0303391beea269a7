"""The reference answer in equivalent notations, which must score as high."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"

FORMS = {
    "answer tag": "<answer>{answer}</answer>",
    "box": r"\boxed{{answer}}",
    "hashes": "#### {answer}",
    "after reasoning": "First this, then that.\n\n#### {answer}",
    "phrase": "The answer is {answer}.",
    "label": "Answer: {answer}",
    "bold": "**{answer}**",
}
"""Ways to present an answer; for a reward that asks for none in particular."""


def probes(subject: Subject) -> Iterator[Probe]:
    """Other presentations, and other spellings of a number."""
    if subject.form == "{answer}" and "\n" not in subject.answer:
        for name, form in FORMS.items():
            yield Probe(name=name, text=form.replace("{answer}", subject.answer), expected="paid")
    if re.fullmatch(r"-?[0-9]{1,15}", subject.answer):
        yield Probe(name="decimals", text=subject.written(f"{subject.answer}.0"), expected="paid")
        if len(subject.answer.lstrip("-")) > 3:
            yield Probe(name="thousands", text=subject.written(f"{int(subject.answer):,}"), expected="paid")
