"""Default tasks for audits."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import TypeAdapter

from posttrain.components.tasks import Tasks
from posttrain.grading.extraction import json_list
from posttrain.types import Task

QUESTIONS = (
    ("number", "What do you get when you multiply six by seven?", "42"),
    ("negative", "What remains of three thousand when you take away 4200?", "-1200"),
    ("fraction", "Which part of a cake is left when a quarter was eaten?", "3/4"),
    ("word", "In which direction does the sun rise, would you say?", "east"),
)
"""Key, prompt and answer."""


def _function(key: str, signature: str, body: str, tests: Sequence[str]) -> Task:
    program = f"def {signature}:\n    return {body}\n"
    return Task(key=key, prompt=f"Write the Python function {signature}.", answer=program, fields={"tests": tests})


def _program(key: str, body: str, cases: Sequence[tuple[int, int, int]]) -> Task:
    program = f"a, b = map(int, input().split())\nprint({body})\n"
    tests = [{"input": f"{a} {b}\n", "output": f"{c}\n"} for a, b, c in cases]
    return Task(key=key, prompt=f"Read two numbers and print their {key}.", answer=program, fields={"tests": tests})


FUNCTIONS = (
    _function("sum", "add(a, b)", "a + b", ["assert add(1, 2) == 3", "assert add(70, -3) == 67"]),
    _function("list", "squares(n)", "[i * i for i in range(n)]", ["assert squares(3) == [0, 1, 4]"]),
    _function("claim", "even(n)", "n % 2 == 0", ["assert even(4)", "assert not even(7)"]),
)
"""For rewards that call Python functions: values of several types. For one test of the last, `True` is correct."""
PROGRAMS = (
    _program("sum", "a + b", [(1, 2, 3), (70, -3, 67)]),
    _program("difference plus seven", "a - b + 7", [(9, 4, 12), (3, 8, 2)]),
)
"""For rewards that run programs."""
OURS = {"python_tests": FUNCTIONS, "io_tests": PROGRAMS, "counted_work": PROGRAMS}
"""Tasks for rewards that run programs, by the kind of the reward."""
GENERATED: dict[str, object] = {
    "countdown": "countdown",
    "sql": "queries",
    "verilog": "circuits",
    "reasoning_gym": {"kind": "reasoning_gym", "name": "chain_sum", "size": 3},
}
"""Generated tasks for rewards that read fields of such tasks, by the kind of the reward."""
SCORED_BY = {
    "arithmetic": "match",
    "ciphers": "translated",
    "fractions": "listed",
    "identities": "proved",
    "passages": "reranked",
    "repairs": "patch_similarity",
    "tool_requests": "tool_calls",
}
"""Rewards of generated tasks, by the kind of the tasks, that need neither a model nor a sandbox."""
COUNT = 3
"""Number of tasks taken from given or generated ones."""


def sample_tasks(kind: str, given: object = None) -> Sequence[Task]:
    """A few tasks: given ones, generated ones of the kind that a reward needs, or the defaults above."""
    source = given if given is not None else GENERATED.get(kind)
    if source is None and kind in OURS:
        return OURS[kind]
    if source is None:
        return [Task(key=key, prompt=prompt, answer=answer) for key, prompt, answer in QUESTIONS]
    loaded = TypeAdapter(Tasks).validate_python(source).load()
    answered = [replace(task, answer=_first(task.answer)) for task in loaded if task.answer]
    return (answered or list(loaded))[:COUNT]


def _first(answer: str | None) -> str | None:
    """One answer: of a list of texts, each of which is right, the first."""
    items = json_list(answer or "") or []
    texts = [item for item in items if isinstance(item, str)]
    return texts[0] if texts and len(texts) == len(items) else answer
