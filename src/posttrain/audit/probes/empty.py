"""Completions without any content."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

TEXTS = {"nothing": "", "space": " ", "line ends": "\n\n\n", "zero": "\0", "invisible": "\u200b\u200d\ufeff"}


def probes(subject: Subject) -> Iterator[Probe]:
    """Nothing, and nothing in the right form."""
    for name, text in TEXTS.items():
        yield Probe(name=name, text=text, expected="unpaid")
        if subject.form != "{answer}":
            something = bool(text.strip())  # a reward for form may take it for content
            yield Probe(name=f"{name} in form", text=subject.written(text), expected="unpaid", of_answer=something)
    yield Probe(name="nothing, cut", text="", expected="unpaid", stop_reason="length")
