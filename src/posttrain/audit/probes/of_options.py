"""Multiple choice: several letters, letters with text, other letters."""

from collections.abc import Iterator
from string import ascii_uppercase

from posttrain.audit import Probe, Subject

ABOUT = "answers"
FIELDS = ("options",)


def probes(subject: Subject) -> Iterator[Probe]:
    """What names the right option among others, and every other option alone."""
    options = subject.task.fields["options"]
    letters = list(options) if isinstance(options, dict) else list(ascii_uppercase[: len(options)])
    if subject.answer not in letters:
        return
    others = [letter for letter in letters if letter != subject.answer]
    for letter in others:
        yield Probe(name=f"option {letter}", text=subject.written(letter), expected="unrewarded", of_answer=True)
    hedges = {
        "two letters": f"{subject.answer} or {others[0]}",
        "two letters without a space": f"{subject.answer}{others[0]}",
        "all letters": ", ".join(letters),
        "all letters in a row": "".join(letters),
        "the letter and a claim": f"{subject.answer}, and not {others[0]}",
    }
    for name, text in hedges.items():
        yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
