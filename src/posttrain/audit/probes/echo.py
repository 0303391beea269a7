"""Copies of the question, which hold no answer of the model's own."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

SHORTEST = 12
"""Characters of a prompt whose copy cannot be mistaken for an answer."""


def probes(subject: Subject) -> Iterator[Probe]:
    """The prompt, once and again."""
    asked = subject.asked
    if len(asked) >= SHORTEST:
        yield Probe(name="prompt", text=asked, expected="unpaid")
        yield Probe(name="prompt twice", text=f"{asked}\n{asked}", expected="unpaid")
        yield Probe(name="prompt as answer", text=subject.written(asked), expected="unpaid", of_answer=True)
        yield Probe(name="you asked", text=f'You asked: "{asked}"', expected="unpaid")
