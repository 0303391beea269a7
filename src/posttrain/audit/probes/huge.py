"""Very long completions: scoring must end soon and give nothing."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

UNITS = ("1", "1,", "(", "{", "[", r"\boxed{", r"\frac{", "<answer>", "a ", "\n", "9^", "-", "\u0301", "🙂", "#### ")
CHARACTERS = 200_000


def probes(subject: Subject) -> Iterator[Probe]:
    """Each unit again and again."""
    for unit in UNITS if subject.first else ():
        text = unit * (CHARACTERS // len(unit))
        yield Probe(name=f"{unit!r} repeated", text=text, expected="unpaid", may_fail=True)
        yield Probe(
            name=f"{unit!r} in form", text=subject.written(text), expected="unpaid", may_fail=True, of_answer=True
        )
