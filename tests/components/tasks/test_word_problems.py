"""Word problems: three worked by hand, and laws of all."""

import re
from collections import Counter

import pytest

from posttrain.components.tasks.word_problems import DISTRACTORS, WordProblems, worked
from posttrain.datasets.holdout import holdout
from posttrain.errors import UserError
from posttrain.grading.expressions import evaluate


@pytest.mark.parametrize(
    ("problem", "lines", "answer"),
    [
        ((12, (("+", 5),)), ["12 + 5 = 17"], 17),
        ((8, (("*", 5), ("-", 12))), ["8 * 5 = 40", "40 - 12 = 28"], 28),
        ((30, (("/", 6), ("*", 4), ("-", 19))), ["30 / 6 = 5", "5 * 4 = 20", "20 - 19 = 1"], 1),
    ],
)
def test_worked_by_hand(problem, lines, answer):
    assert worked(problem) == (lines, answer)


def content(task):
    [message] = task.prompt
    assert message["role"] == "user"
    return message["content"]


READ = {
    r"has (\d+) boxes with (\d+) \w+ in each": "*",
    r"fills (\d+) bags with (\d+) \w+ each": "*",
    r"out in (\d+) rows of (\d+)": "*",
}
CHANGES = {
    r"buys (\d+) more|gives (?!(?:\d+) \w+ to )\w+ (\d+)|finds (\d+) more": "+",
    r"gives (\d+) \w+ to|loses (\d+)|sells (\d+)": "-",
    r"(\d+) times": "*",
    r"into (\d+)": "/",
}


def solved(text, distracted):
    """The answer by reading the sentences one by one, without the calculation of the task."""
    value = None
    for sentence in text.split(". ")[:-1]:
        if any(re.search(pattern, sentence) for pattern in distracted):
            continue
        if value is None:
            packs = [re.search(pattern, sentence) for pattern in READ]
            found = next((pack for pack in packs if pack), None)
            numbers = found.groups() if found else re.search(r"(?:has|collects|starts with) (\d+) ", sentence).groups()
            value = evaluate("*".join(numbers))
            continue
        [(sign, match)] = [(s, m) for pattern, s in CHANGES.items() if (m := re.search(pattern, sentence))]
        value = evaluate(f"{value}{sign}{next(filter(None, match.groups()))}")
    return value


def test_reading_the_words_gives_the_answer():
    """Sentences about another person's things, age, way, days and degrees do not matter."""
    for task in WordProblems(size=300, distractors=3, instruction="").load():
        text = content(task)
        name = re.search(r"does (\w+) have now\?", text)[1]
        distracted = (rf"^(?!{name})\w+ has ", "years old", "minutes away", "days ago", "degrees outside")
        assert solved(text, distracted) == int(task.answer), text


def test_calculations_are_true_and_answers_whole_and_positive():
    tasks = WordProblems(size=400).load()
    for task in tasks:
        lines = task.fields["calculation"]
        assert all(evaluate(left) == int(right) > 0 for left, right in (line.split(" = ") for line in lines))
        assert lines[-1].endswith(f" = {task.answer}")
        assert task.demonstrations == ("\n".join([*lines, f"#### {task.answer}"]),)
    assert set(Counter(task.domain for task in tasks)) == {"1 step", "2 steps", "3 steps"}


def test_no_calculation_is_there_twice_so_held_out_ones_are_new():
    tasks = WordProblems(size=2000).load()
    kept, held = holdout(tasks, 200, seed=0)
    calculations = [tuple(task.fields["calculation"]) for task in tasks]
    assert len(set(calculations)) == len(calculations)
    assert len(held) == 200
    assert not {tuple(t.fields["calculation"]) for t in held} & {tuple(t.fields["calculation"]) for t in kept}


@pytest.mark.slow
def test_difficulty():
    one = WordProblems(size=200, steps=(1, 1), largest=20, distractors=0).load()
    assert {task.domain for task in one} == {"1 step"}
    for task in one:
        numbers = list(map(int, re.findall(r"\d+", content(task).partition("?")[0])))
        assert len(numbers) == 2 and max(numbers) <= 20
    many = WordProblems(size=50, steps=(3, 3), distractors=len(DISTRACTORS)).load()
    counts = {len(re.findall(r"\d+", content(task).partition("?")[0])) for task in many}
    assert counts <= set(range(4, 10)) and max(counts) > 6
    with pytest.raises(UserError, match=r"tasks\.size is 5,000, and only about [\d,]+ different word problems"):
        WordProblems(size=5000, steps=(1, 1), largest=10).load()


def test_plain_text_and_instruction():
    task = WordProblems(size=1, as_chat=False, instruction="").load()[0]
    assert task.prompt.endswith("have now?\n")
    assert content(WordProblems(size=1).load()[0]).endswith("as: #### number")
