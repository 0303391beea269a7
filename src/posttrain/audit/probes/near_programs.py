"""Programs that are nearly correct, and programs of other tasks. One that is correct by chance becomes a finding."""

import re
from collections.abc import Callable, Iterator

from posttrain.audit import Probe, Subject

ABOUT = "programs"


def probes(subject: Subject) -> Iterator[Probe]:
    """Small changes of the reference program, its first half, and programs of other tasks."""
    program = subject.answer
    changed = {
        "another sign": _last(r"(?<![+])\+(?![+=])", "-", program),
        "another number": _last(r"(?<![\w.])\d+(?![\w.])", lambda found: str(int(found[0]) + 1), program),
        "another operator": _last(r"&(?!&)|\|(?!\|)", lambda found: "^", program),
        "half": program[: len(program) // 2],
        "without its first letter": program.lstrip()[1:],
        "twice on one line": f"{program} {program}" if "\n" not in program.strip() else "",
    }
    others = {f"another task's program {n}": other for n, other in enumerate(subject.others, 1)}
    for name, text in (changed | others).items():
        if text.strip() and text != program:
            yield Probe(name=name, text=subject.written(text), expected="unrewarded")


def _last(pattern: str, new: str | Callable[[re.Match[str]], str], program: str) -> str:
    """The program with the last match replaced; unchanged if there is none."""
    matches = list(re.finditer(pattern, program))
    if not matches:
        return program
    found = matches[-1]
    return program[: found.start()] + (new if isinstance(new, str) else new(found)) + program[found.end() :]
