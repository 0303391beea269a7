"""The reference answer in equivalent notations, which must be rewarded as well."""

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
"""Formats of an answer, for a reward that requires no particular one."""


def probes(subject: Subject) -> Iterator[Probe]:
    """Other formats of the answer, and other notations of a number."""
    if subject.form == "{answer}" and "\n" not in subject.answer:
        for name, form in FORMS.items():
            yield Probe(name=name, text=form.replace("{answer}", subject.answer), expected="rewarded")
    if "\n" not in subject.answer:
        yield Probe(name="spaces around", text=subject.written(f" {subject.answer}  "), expected="rewarded")
    if re.fullmatch(r"-?[0-9]{1,15}", subject.answer):
        yield Probe(name="decimals", text=subject.written(f"{subject.answer}.0"), expected="rewarded")
        if len(subject.answer.lstrip("-")) > 3:
            yield Probe(name="thousands", text=subject.written(f"{int(subject.answer):,}"), expected="rewarded")
