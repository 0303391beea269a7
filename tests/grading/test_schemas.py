"""References in schemas of tools, which are refused before anything is sampled."""

from typing import Any

import pytest

from posttrain.components.rewards.python_tests import PythonTests
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.errors import UserError
from posttrain.grading.schemas import MOST, schema_fault, tools_fault
from posttrain.types import Task


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"$ref": "https://example.org/x.json"}, "$ref 'https://example.org/x.json' is remote"),
        ({"properties": {"a": {"$ref": "x.json#/a"}}}, "is remote"),
        ({"$ref": "#"}, "$ref '#' refers to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"$ref": "#/$defs/none"}, "refers to nothing"),
        ({"anyOf": [{"$dynamicRef": "http://e.org"}]}, "$dynamicRef 'http://e.org' is remote"),
        # a tree of nodes is no circle of references
        ({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}}, ""),
        ({"properties": {"$ref": {"type": "string"}}}, ""),
        (None, ""),
    ],
)
def test_references_by_hand(schema: Any, fault: str) -> None:
    found = schema_fault(schema)
    assert fault in found and bool(fault) == bool(found)


def test_tools_in_both_forms_and_rewards_that_refuse_them() -> None:
    bad = {"$ref": "#"}
    assert tools_fault([{"name": "a"}, {"function": {"parameters": bad}}]).startswith("tool 2: $ref '#'")
    assert tools_fault([{"name": "a", "parameters": bad}]).startswith("tool 1") and not tools_fault("text")
    assert schema_fault([1] * (MOST + 1)) == "its schema is too large"
    task = Task(key="t7", prompt="p", fields={"tools": [{"name": "a", "parameters": bad}]})
    with pytest.raises(UserError, match=r"task 't7': tool 1: \$ref '#' refers to itself"):
        ToolCalls().check([task])
    ToolCalls().check([Task(key="t", prompt="p")])


def test_a_task_without_a_test_is_refused() -> None:
    with pytest.raises(UserError, match="task 't7' has no field 'tests'"):
        PythonTests().check([Task(key="t7", prompt="p", fields={"tests": []})])
    with pytest.raises(UserError, match="task 't7' has the test 'assert'"):
        PythonTests().check([Task(key="t7", prompt="p", fields={"tests": ["assert"]})])
    PythonTests().check([Task(key="t", prompt="p", fields={"tests": ["assert f(1) == 2"]})])
