"""Very long completions, which must be scored quickly and not be rewarded."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

UNITS = ("1", "1,", "(", "{", "[", r"\boxed{", r"\frac{", "<answer>", "a ", "\n", "9^", "-", "\u0301", "🙂", "#### ")
CHARACTERS = 200_000


def probes(subject: Subject) -> Iterator[Probe]:
    """Each unit repeated to 200,000 characters."""
    for unit in UNITS if subject.first else ():
        text = unit * (CHARACTERS // len(unit))
        yield Probe(name=f"{unit!r} repeated", text=text, expected="unrewarded", may_fail=True)
        if subject.form != "{answer}":
            written = subject.written(text)
            yield Probe(name=f"{unit!r} in form", text=written, expected="unrewarded", may_fail=True, of_answer=True)
