"""Answers that are nearly correct, and answers of other tasks."""

import re
from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"


def probes(subject: Subject) -> Iterator[Probe]:
    """Changes of the reference answer, all of them incorrect."""
    for name, answer in {**_changed(subject.answer), **_others(subject)}.items():
        yield Probe(name=name, text=subject.written(answer), expected="unrewarded", of_answer=True)


def _changed(answer: str) -> dict[str, str]:
    if re.fullmatch(r"-?[0-9]{1,300}", answer):
        number = int(answer)
        near = {
            "one more": number + 1,
            "one less": number - 1,
            "ten times": number * 10 or 10,
            "sign": -number or 1,
            "digits reversed": int(str(abs(number))[::-1]),
        }
        others = {name: str(changed) for name, changed in near.items() if changed != number}
        return {
            **others,
            "a thousandth more": f"{answer}.001",
            "a digit more": f"{answer}1",
            "an unknown": f"{answer}x",
        }
    return {"a letter less": answer[:-1], "negated": f"not {answer}", "something else": "something else entirely"}


def _others(subject: Subject) -> dict[str, str]:
    return {f"another task's answer {n}": other for n, other in enumerate(subject.others, 1) if other != subject.answer}
