"""Random calls have the types of the schema, and depend on the generator alone."""

import json
from random import Random
from typing import Any

from jsonschema import validate

from posttrain.components.environments._foreign.random_calls import random_call
from posttrain.grading.turn_calls import read_turn

PLACE = {"type": "object", "properties": {"row": {"type": "integer", "minimum": 2, "maximum": 4}}, "required": ["row"]}
TOOL: dict[str, Any] = {
    "name": "put",
    "parameters": {
        "type": "object",
        "$defs": {"Place": PLACE},
        "additionalProperties": False,
        "properties": {
            "thing": {"type": "string"},
            "colour": {"enum": ["red", "blue"]},
            "place": {"$ref": "#/$defs/Place"},
            "weights": {"type": "array", "items": {"type": "number"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "twice": {"type": ["boolean", "null"]},
            "always": {"const": 7},
            "tree": {"type": "object", "properties": {"tree": {"type": "object", "properties": {}}}},
        },
        "required": ["thing", "colour", "place", "weights", "note"],
    },
}


def drawn(seed: int) -> dict[str, Any]:
    (call,) = read_turn(random_call([TOOL], "hermes", "a lamp, and a box", Random(seed)), "hermes")
    assert call.name == "put" and not call.fault
    return dict(call.arguments)


def test_arguments_fit_the_schema() -> None:
    found = [drawn(seed) for seed in range(200)]
    for arguments in found:
        validate(arguments, TOOL["parameters"])
    assert {arguments["thing"] for arguments in found} == {"a", "lamp", "and", "box"}
    assert {arguments["colour"] for arguments in found} == {"red", "blue"}
    assert {arguments["place"]["row"] for arguments in found} == {2, 3, 4}
    assert {"twice" in arguments for arguments in found} == {True, False}, "what is not required comes in half of them"


def test_the_same_generator_draws_the_same_call() -> None:
    assert json.dumps(drawn(3)) == json.dumps(drawn(3)) != json.dumps(drawn(4))


def test_a_tool_without_parameters_and_a_text_without_words() -> None:
    assert random_call([{"name": "look"}], "python", "", Random(0)) == "look()"
    one = {"name": "say", "parameters": {"properties": {"word": {}}, "required": ["word"]}}
    assert random_call([one], "python", "?!", Random(0)) == "say(word='x')"
