"""Grammars of tagged steps: the graph, paths by hand, and every fault with its sentence."""

import pytest
from pydantic import ValidationError

from posttrain.components.tasks.tagged_steps import GRAMMAR
from posttrain.datasets.grammars import FUNCTIONS, Grammar, Step

WHOLE = "<step>1+2=3</step> <step>3-1=1</step>\n<check>no</check><fix> 3-1=2 </fix><answer>2</answer>\n"


def test_a_whole_path() -> None:
    path = GRAMMAR.read(WHOLE)
    kinds = ["step", "step", "check", "fix", "answer"]
    assert [step.kind for step in path.steps] == kinds and not path.fault
    assert path.steps[3] == Step("fix", "3-1=2") and path.answer == "2"


@pytest.mark.parametrize(
    ("text", "fault", "steps"),
    [
        ("", "there is no answer: no <answer>", 0),
        ("<step>1</step>", "there is no answer: no <answer>", 1),
        ("so <step>1</step>", "'so' stands outside the tags", 0),
        ("<step>1</step> so <answer>1</answer>", "'so' stands outside the tags", 1),
        ("<step>1</step><answer>1</answer> done", "'done' stands outside the tags", 2),
        ("<step>1", "<step> is not closed", 0),
        ("1</step>", "'1' stands outside the tags", 0),
        ("</step>", "</step> closes what is not open", 0),
        ("<step>1<check>ok</check></step>", "<check> stands inside <step>", 0),
        ("<step>1</check>", "<step> is closed by </check>", 0),
        ("<answer>1</answer>", "<answer> may not follow the question; allowed: <step>", 0),
        ("<step>1</step><fix>2</fix>", "<fix> may not follow <step>; allowed: <step>, <check>, <answer>", 1),
        ("<step>1</step><answer>1</answer><step>2</step>", "<step> may not follow <answer>; allowed: nothing", 2),
        ("<step>1</step>" * 16 + "<answer>1</answer>", "it has more than 16 steps", 16),
        ("<think>1</think>", "'<think>1</think>' stands outside the tags", 0),
    ],
)
def test_faults(text: str, fault: str, steps: int) -> None:
    path = GRAMMAR.read(text)
    assert (path.fault, len(path.steps), path.answer) == (fault, steps, None)


def test_the_graph_of_the_release() -> None:
    assert len(FUNCTIONS.kinds) == 8 and FUNCTIONS.ends == ("output",)
    assert FUNCTIONS.allowed(None) == ("clarify", "analysis", "subquestion", "next_step")
    assert FUNCTIONS.allowed("direct_answer") == ("output", "verify") and FUNCTIONS.allowed("output") == ()


def test_prompts_are_filled_once() -> None:
    grammar = Grammar(first=("a",), after={}, prompts={"a": "{problem}|{path}|{other}"})
    assert grammar.prompt("a", "{path}", "<a>") == "{path}|<a>|{other}"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"first": ("a",), "after": {"a": ("a",)}}, "no path ends"),
        ({"first": ("a",), "after": {}, "prompts": {"b": "{problem}"}}, "the grammar has no kind 'b'"),
        ({"first": ("a",), "after": {"a": ("b",)}, "prompts": {"a": "{problem}"}}, "there is no prompt for 'b'"),
        ({"first": ("a",), "after": {}, "prompts": {"a": "go on"}}, "must name {problem}"),
        ({"first": ("a b",), "after": {}}, "pattern"),
        ({"first": (), "after": {}}, "at least 1"),
    ],
)
def test_bad_grammars(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Grammar(**settings)  # type: ignore[arg-type]
