"""The reference answer and demonstrations, which must score highest."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject


def probes(subject: Subject) -> Iterator[Probe]:
    """The answer in the required format, with a line end, and the demonstrations."""
    if subject.language:
        fenced = f"Here it is.\n\n```{subject.language}\n{subject.answer}\n```\nThat is all."
        yield Probe(name="in a fence", text=fenced, expected="rewarded")
    yield Probe(name="reference answer", text=subject.written(subject.answer), expected="rewarded")
    yield Probe(name="line end", text=subject.written(subject.answer) + "\n", expected="rewarded")
    if subject.form == "{answer}" or subject.gold:
        for number, text in enumerate(subject.task.demonstrations, 1):
            yield Probe(name=f"demonstration {number}", text=text, expected="rewarded")
