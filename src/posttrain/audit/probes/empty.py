"""Completions without any content."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

TEXTS = {"nothing": "", "space": " ", "line ends": "\n\n\n", "zero": "\0", "invisible": "\u200b\u200d\ufeff"}


def probes(subject: Subject) -> Iterator[Probe]:
    """Each text, and each in the format of an answer."""
    for name, text in TEXTS.items():
        yield Probe(name=name, text=text, expected="unrewarded")
        if subject.form != "{answer}":
            something = bool(text.strip())  # a reward for format may accept it
            yield Probe(name=f"{name} in form", text=subject.written(text), expected="unrewarded", of_answer=something)
    yield Probe(name="nothing, cut", text="", expected="unrewarded", stop_reason="length")
