import pytest
from pydantic import ValidationError

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.concluded import Concluded
from posttrain.components.tasks.critiques import Critiques, critique
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError

STEPS = [("47-8", 39), ("39+35", 75)]
"""A candidate for 47+35-8 with a slip in its last step."""


def test_the_styles_of_a_critique() -> None:
    assert critique(STEPS, "74", "steps") == (
        " 47-8=39 right; 39+35=75 wrong, 39+35=74\n#### 74\nConclusion: wrong [END]"
    )
    assert critique(STEPS, "74", "error") == " 39+35=75 wrong, 39+35=74\n#### 74\nConclusion: wrong [END]"
    assert critique(STEPS, "74", "solution") == " 47-8=39; 39+35=74\n#### 74\nConclusion: wrong [END]"
    right = [("47-8", 39), ("39+35", 74)]
    assert critique(right, "74", "error") == " no step is wrong\n#### 74\nConclusion: right [END]"


def test_a_slip_is_carried_on_and_the_solution_is_not() -> None:
    """-3-5 slips to -9: the next step is right in itself, the result is not."""
    slipped = [("2-5", -3), ("-3-5", -9), ("-9+10", 1)]
    assert critique(slipped, "2", "steps").startswith(" 2-5=-3 right; -3-5=-9 wrong, -3-5=-8; -9+10=1 right\n#### 2")
    assert critique(slipped, "2", "solution").startswith(" 2-5=-3; -3-5=-8; -8+10=2\n#### 2\nConclusion: wrong")


def test_two_slips_that_cancel_give_a_right_result_by_wrong_steps() -> None:
    steps = [("1+1", 3), ("3+1", 3)]
    assert critique(steps, "3", "steps").endswith("Conclusion: right [END]")
    assert critique(steps, "3", "error").startswith(" 1+1=3 wrong, 1+1=2\n")


def test_one_problem_gives_a_hundred_distinct_candidates() -> None:
    made = Critiques()
    tasks = made.load()
    assert len(tasks) == 300 and len({(task.prompt, task.demonstrations) for task in tasks}) == 300
    [problem] = made.of.load()
    candidates = {str(task.prompt) for task in tasks}
    assert len(candidates) == 100
    head, tail = f"Check the solution.\n{problem.prompt} ", "\nCritique:"
    assert all(text.startswith(head) and text.endswith(tail) for text in candidates)
    for task in tasks:
        result = str(task.prompt).removesuffix(tail).rpartition("#### ")[2]
        assert (task.answer == "right") == (result == problem.answer)
        assert task.demonstrations[0].endswith(f"#### {problem.answer}\nConclusion: {task.answer} [END]")
    assert 0.2 < sum(task.answer == "right" for task in tasks) / len(tasks) < 0.8


def test_right_candidates_are_solutions_of_the_problem() -> None:
    [problem] = Critiques().of.load()
    tasks = Critiques(write="candidates", candidates=20, slip=0.0).load()
    assert len(tasks) == 20
    for task in tasks:
        assert (task.prompt, task.answer) == (problem.prompt, problem.answer)
        for step in task.demonstrations[0].strip().partition("\n")[0].split("; "):
            expression, _, value = step.partition("=")
            assert eval(expression) == int(value)


def test_a_problem_with_few_candidates_gives_those() -> None:
    few = Critiques(of=Arithmetic(size=1, terms=(2, 2)), slip=0.0, teachers=("steps",))
    assert len(few.load()) == 1


def test_cut_refused_and_repeated_critiques_are_dropped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cut = Critiques(candidates=30, longest=90)
    whole = [task for task in cut.load() if task.demonstrations[0].endswith("[END]")]
    assert 0 < len(whole) < len(cut.load())
    assert Concluded(tasks=cut).load() == whole
    path = tmp_path / "mine.jsonl"
    good = '{"prompt": "p", "completion": "Fine. Conclusion: right [END] "}\n'
    path.write_text(good + good + '{"prompt": "p", "completion": "I cannot help with that."}\n')
    assert len(Concluded(tasks=Files(path=str(path))).load()) == 1
    with pytest.raises(UserError, match=r"none of the 3 rows ends in a conclusion.*Set tasks.conclusion"):
        Concluded(tasks=Files(path=str(path)), conclusion="Verdict: .*").load()
    with pytest.raises(ValidationError, match="no regular expression"):
        Concluded(tasks=cut, conclusion="(")
