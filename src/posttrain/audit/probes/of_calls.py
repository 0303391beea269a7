"""Tool calls: calls too many, twice, and values of another type."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"
FIELDS = ("tools",)


def probes(subject: Subject) -> Iterator[Probe]:
    """Changes of the reference calls, all of them incorrect; nothing for a task that wants no call."""
    calls = subject.answer.splitlines()
    if not calls or calls[0].startswith("<"):
        return
    changed = {
        "the last call twice": "\n".join([*calls, calls[-1]]),
        "a call and a remark": f"{subject.answer}\nThese are the calls.",
        "true for 1": re.sub(r"(?<=[=:])( ?)1(?=[,)}])", r"\1true", subject.answer),
        "texts for numbers": re.sub(r"(?<=[=:])( ?)(\d+)(?=[,)}])", r'\1"\2"', subject.answer),
    }
    for name, text in changed.items():
        if text != subject.answer:
            yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
    once = subject.written(subject.answer)
    if once != subject.answer:
        yield Probe(name="a second block", text=f"{once}\n{once}", expected="unrewarded")
