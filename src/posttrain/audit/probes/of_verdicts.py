"""Statements that are proved or disproved: the other verdict, both, and doubts."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"
FIELDS = ("truth",)


def probes(subject: Subject) -> Iterator[Probe]:
    """Verdicts that do not commit to the right one."""
    right = "proved" if subject.task.fields["truth"] in (True, "true", "True", "proved") else "disproved"
    other = "disproved" if right == "proved" else "proved"
    texts = {
        "the other verdict": other,
        "both": f"{right} and {other}",
        "either": f"{right} or {other}",
        "both in a row": f"{other}{right}",
        "denied": f"not {right}",
    }
    for name, text in texts.items():
        yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
