"""Facts of rollouts as text."""

import json

from posttrain.viewer.facts import as_text, facts


def test_what_an_environment_reported_is_text() -> None:
    info = {
        "turn_rewards": [0.5, 1.0],
        "valid_turns": [True, False],
        "measures": {"steps_taken": 3, "note": "two\nlines"},
        "log": ["opened the door", 'it is "locked"\nagain'],
        "nothing": [],
        "said": "You see <b>a key</b>.",
    }
    found = {entry["name"]: entry["text"] for entry in facts(json.dumps(info))}
    assert found == {
        "turn rewards": "0.500, 1.000",
        "valid turns": "yes, no",
        "measures": "steps taken: 3\nnote:\ntwo\nlines",
        "log": '1: opened the door\n2:\nit is "locked"\nagain',
        "nothing": "none",
        "said": "You see <b>a key</b>.",
    }


def test_what_is_no_object_is_shown_as_it_is() -> None:
    assert facts(None) == [] == facts("")
    assert facts("{broken") == [{"name": "", "text": "{broken"}]
    assert facts("[1, 2]") == [{"name": "", "text": "1, 2"}]
    assert as_text({"a": {"b": [{"c": None}]}}) == "a:\n  b:\n    1:\n      c: none"
