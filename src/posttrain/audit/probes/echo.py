"""Copies of the prompt, without an answer."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

SHORTEST = 12
"""Fewest characters of a prompt whose copy cannot be mistaken for an answer."""


def probes(subject: Subject) -> Iterator[Probe]:
    """The prompt once, twice, as the answer, and quoted."""
    prompt = subject.prompt_text
    if len(prompt) >= SHORTEST:
        yield Probe(name="prompt", text=prompt, expected="unrewarded")
        yield Probe(name="prompt twice", text=f"{prompt}\n{prompt}", expected="unrewarded")
        yield Probe(name="prompt as answer", text=subject.written(prompt), expected="unrewarded", of_answer=True)
        yield Probe(name="you asked", text=f'You asked: "{prompt}"', expected="unrewarded")
