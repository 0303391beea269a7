"""Tool calls of a turn, in each form; a call that cannot be read stands alone."""

import pytest

from posttrain.grading.calls import MOST_CALLS
from posttrain.grading.turn_calls import CallForm, read_turn, written_call

CALL = '{"name": "buy", "arguments": {"item": "milk", "n": 2}}'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", CALL),
        ("json", f"I buy.\n{CALL}\nDone."),
        ("hermes", f"I buy. <tool_call>\n{CALL}\n</tool_call>"),
        ("hermes", '<tool_call>{"name": "buy", "arguments": "{\\"item\\": \\"milk\\", \\"n\\": 2}"}</tool_call>'),
        ("python", 'buy(item="milk", n=2)'),
        ("python", '```python\nbuy(item="milk", n=2)\n```'),
    ],
)
def test_a_call_is_read(form: CallForm, text: str) -> None:
    (call,) = read_turn(text, form)
    assert (call.name, dict(call.arguments), call.fault) == ("buy", {"item": "milk", "n": 2}, "")


def test_texts_of_tags_are_marked_as_such() -> None:
    text = (
        "<tool_call><function=buy><parameter=item>\nmilk\n</parameter><parameter=n>2</parameter></function></tool_call>"
    )
    (call,) = read_turn(text, "qwen")
    assert (call.name, dict(call.arguments), call.texts) == ("buy", {"item": "milk", "n": "2"}, True)
    (call,) = read_turn("Hm. <search>who?</search> <find>x</find>", "tags", ["search"])
    assert (call.name, dict(call.arguments), call.texts) == ("search", {"": "who?"}, True)


@pytest.mark.parametrize("form", ["json", "hermes", "qwen", "python", "tags"])
def test_a_turn_without_calls_has_none(form: CallForm) -> None:
    assert read_turn("The answer is 4 (I think).", form, ["search"]) == []
    assert read_turn("", form, ["search"]) == []


@pytest.mark.parametrize(
    ("form", "cut"),
    [
        ("json", CALL[:-1]),
        ("hermes", f"<tool_call>{CALL}"),
        ("qwen", "<tool_call><function=buy><parameter=item>milk"),
        ("python", 'buy(item="milk"'),
        ("tags", "<search>who"),
    ],
)
def test_a_cut_call_is_not_run(form: CallForm, cut: str) -> None:
    (call,) = read_turn(cut, form, ["search"])
    assert call.fault
    assert not call.name


def test_a_bad_call_takes_no_other_with_it() -> None:
    turn = f"<tool_call>{CALL}</tool_call><tool_call>[1]</tool_call><tool_call>{CALL}</tool_call>"
    first, bad, last = read_turn(turn, "hermes")
    assert first.name == last.name == "buy"
    assert bad.fault
    open_inside = read_turn(f"<tool_call>{CALL[:9]}<tool_call>{CALL}</tool_call>", "hermes")
    assert [bool(call.fault) for call in open_inside] == [True, False]


def test_calls_beyond_the_limit_are_refused() -> None:
    calls = read_turn(f"<tool_call>{CALL}</tool_call>" * 500, "hermes")
    assert sum(not call.fault for call in calls) == MOST_CALLS
    assert len(calls) == 500


def test_a_parameter_twice_is_refused() -> None:
    text = "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>"
    assert read_turn(f"<tool_call>{text}</tool_call>", "qwen")[0].fault == "the call has a parameter twice"


@pytest.mark.parametrize("form", ["json", "hermes", "python"])
def test_a_written_call_is_read_as_it_is(form: CallForm) -> None:
    arguments = {"item": 'milk "fresh"\n', "n": 2, "ratio": 0.5, "sure": True, "none": None, "more": [{"a": [1]}]}
    (call,) = read_turn(written_call("buy", arguments, form), form)
    assert (call.name, dict(call.arguments), call.fault, call.texts) == ("buy", arguments, "", False)


def test_a_written_call_of_texts_is_read_as_texts() -> None:
    (call,) = read_turn(written_call("buy", {"item": "milk", "n": 2, "more": ["a"]}, "qwen"), "qwen")
    assert (dict(call.arguments), call.texts) == ({"item": "milk", "n": "2", "more": '["a"]'}, True)
    (call,) = read_turn(written_call("search", {"query": "who?"}, "tags"), "tags", ["search"])
    assert dict(call.arguments) == {"": "who?"}
