from posttrain.components.tasks.tool_calls import FUNCTIONS, THINGS, ToolCalls
from posttrain.grading.calls import parse_calls, parse_reference


def test_the_table_is_one_to_one_and_the_demonstrations_do_not_have_it() -> None:
    tasks = ToolCalls(size=400, calls=(1, 1)).load()
    table, shown_right = {}, 0
    for task in tasks:
        (call,) = parse_calls(task.answer or "")
        thing, number = str(task.prompt)[3:-3].split()
        assert table.setdefault(thing, call.name) == call.name and call.arguments == {"n": int(number)}
        guess = task.demonstrations[0].partition("<call>")[2].removesuffix("</call>")
        (guessed,) = parse_calls(guess)
        assert guessed.arguments == call.arguments
        shown_right += guessed.name == call.name
    assert sorted(table) == sorted(THINGS) and sorted(table.values()) == list(FUNCTIONS)
    assert 10 <= shown_right <= 45, "one in sixteen by chance"


def test_several_calls_and_another_table() -> None:
    tasks = ToolCalls(size=50, calls=(2, 3), thought=6).load()
    assert {len(parse_reference(task.answer or "")) for task in tasks} == {2, 3}
    assert {task.domain for task in tasks} == {"2 calls", "3 calls"}
    assert all(task.demonstrations[0].index("</think>") == len("<think>") + 6 for task in tasks)
    first, second = (ToolCalls(size=200, seed=seed, calls=(1, 1)).load() for seed in (0, 1))
    assert {str(t.answer)[0] for t in first if "gold" in t.prompt} != {
        str(t.answer)[0] for t in second if "gold" in t.prompt
    }
