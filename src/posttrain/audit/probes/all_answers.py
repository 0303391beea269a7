"""Several answers at once, the correct one among them."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"


def probes(subject: Subject) -> Iterator[Probe]:
    """Lists in which the correct answer is neither first nor last."""
    wrong = _wrong(subject)
    listed = [*wrong[:2], subject.answer, *wrong[2:]]
    for name, between in (("commas", ", "), ("or", " or "), ("spaces", " "), ("slashes", " / ")):
        text = between.join(listed)
        yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
        if subject.form == "{answer}":
            yield Probe(name=f"{name} in a tag", text=f"<answer>{text}</answer>", expected="unrewarded", of_answer=True)
            yield Probe(name=f"{name} in a box", text=rf"\boxed{{{text}}}", expected="unrewarded", of_answer=True)
    text = "\n".join(f"The answer is {answer}." for answer in listed)
    yield Probe(name="claims", text=subject.written(text), expected="unrewarded", of_answer=True)


def _wrong(subject: Subject) -> list[str]:
    if re.fullmatch(r"-?[0-9]{1,300}", subject.answer):
        return [str(int(subject.answer) + step) for step in (-2, -1, 1, 2)]
    others = [other for other in subject.others if other != subject.answer]
    return [*others, "this", "that", "neither", "both"][:4]
