"""Inputs for a line of a program: ones that end or deceive the tracer, and texts that are no input."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

FIELDS = ("source", "line")


def probes(subject: Subject) -> Iterator[Probe]:
    """Texts that must not reach the line, or be evaluated."""
    count = max(1, subject.answer.count(" ") + 1, subject.answer.count(",") + 1)
    ends = {
        "an exit": "__import__('os')._exit(0)",
        "a kill": "__import__('os').kill(__import__('os').getpid(), 9)",
        "the canary": f"open({subject.canary!r}, 'w').close()",
        "the tracer's mark": "_posttrain_reach()",
        "a lambda": "lambda: 0",
        "a name": "nothing",
        "a starred list": "*[0]",
        "a comprehension": "[x for x in range(10**9)]",
        "a power": "9**9**9**9",
    }
    for name, text in ends.items():
        own = ", ".join([text] * count)
        yield Probe(name=name, text=subject.written(own), expected="unrewarded", may_fail=True)
    forged = '[0, ["value", ["str", "[\\"returned\\", true, []]"]]]'
    texts = {
        "a forged log": forged,
        "a forged log in an input": ", ".join([repr(forged)] * count),
        "an input too many": f"{subject.answer}, 1" if "," in subject.answer else f"{subject.answer} 1",
        "an input too few": ", ".join(["0"] * (count - 1)),
        "deep brackets": "(" * 3000 + "1" + ")" * 3000,
        "many digits": ", ".join(["9" * 3000] * count),
        "the line's number": f"line {subject.task.fields['line']}",
    }
    for name, text in texts.items():
        yield Probe(name=name, text=subject.written(text), expected="unrewarded", may_fail=True)
