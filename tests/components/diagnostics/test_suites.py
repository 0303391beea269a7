"""Makers of tests are compared on functions with faulty copies; a model's program is run and checked."""

from typing import Any

import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.suites import Suites
from posttrain.components.tasks.suites import Suites as SuiteTasks
from posttrain.errors import UserError
from tests.components.rewards.programs import tier_for

PROGRAM = """I list the constraints.
```python
# a list of whole numbers
def validate_all_inputs(x):
    return isinstance(x, list) and len(x) < 9
def gen_TC1():
    return []
def gen_TC2():
    return [9, 9, 9]
def gen_TC3():
    return [1] * 50
def gen_TC4():
    raise ValueError
def gen_TC5():
    return 1.5
def gen_TC6():
    while True: pass
def helper():
    return [2]
```
"""


class Scripted:
    """A server and a sampler that write a given text."""

    def __init__(self, text: str) -> None:
        self.text, self.prompts = text, list[str]()

    def bind(self, *key: int | str) -> "Scripted":
        return self

    async def write(self, prompt: str, n: int, sampling: Any) -> list[str]:
        self.prompts.append(prompt)
        return [self.text] * n


def maker(name: str, text: str = "") -> Subject:
    server: Any = Scripted(text)
    return Subject(name=name, load=lambda: server, serve=lambda policy: server)


@pytest.mark.slow
def test_inputs_of_differences_find_more_than_random_ones() -> None:
    diagnostic = Suites(tasks=SuiteTasks(size=4, faults=6, inputs=50), tests=3, weakest=tier_for())
    finding = diagnostic.examine(maker("random"), maker("differential"))
    rows = finding.values["makers"]
    assert rows["differential"]["detection_rate"] > rows["random"]["detection_rate"]
    for row in rows.values():
        assert row["curve"] == sorted(row["curve"]) and row["disagreed"] == 0 and row["tests"] == 3.0
    assert diagnostic.examine(maker("random")).values["makers"]["random"] == rows["random"]
    assert len(finding.lines) == 4


@pytest.mark.slow
def test_generators_that_fail_or_are_not_valid_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six generators two give inputs; the others are too long, raise, give no literal, and do not end."""
    monkeypatch.setattr("posttrain.grading.suite_inputs.generated.__defaults__", (_short(),))
    diagnostic = Suites(tasks=SuiteTasks(size=1, faults=9, inputs=50), tests=8, weakest=tier_for())
    subject = maker("model", PROGRAM)
    row = diagnostic.examine(subject).values["makers"]["model"]
    assert row["left_out"] == 8 and row["tests"] == 2.0 and 0.0 < row["detection_rate"] < 1.0
    server: Any = subject.load()
    first, second = server.prompts
    assert "is correct" in first and "has a fault" in second and first.count("def f(x)") == 1
    assert diagnostic.examine(maker("mute", "I cannot.")).values["makers"]["mute"]["detection_rate"] == 0.0


def _short() -> Any:
    from posttrain.sandbox import Limits

    return Limits(cpu_s=0.5)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UserError, match="the area begins at 9 tests"):
        Suites(tasks=SuiteTasks(size=1), tests=8, fewest=9).examine(maker("random"))
