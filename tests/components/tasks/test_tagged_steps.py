"""Tagged steps: the form by hand, slips that are repaired, checks, and demonstrations without steps."""

from dataclasses import replace

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.tagged_steps import GRAMMAR, TaggedSteps
from posttrain.components.tasks.word_problems import WordProblems
from posttrain.errors import UserError

SUMS = Arithmetic(size=40, terms=(3, 4))


def test_without_slips_and_checks_only_tags_are_new() -> None:
    tasks, tagged = SUMS.load(), TaggedSteps(tasks=SUMS, slips=0.0, checks=0.0).load()
    working, _, answer = tasks[0].demonstrations[0].partition("\n#### ")
    steps = "".join(f"<step>{step}</step>" for step in working.strip().split("; "))
    assert tagged[0] == replace(tasks[0], demonstrations=(f"{steps}<answer>{answer}</answer>",))


def test_every_slip_is_repaired_and_every_text_is_a_path() -> None:
    tagged = TaggedSteps(tasks=SUMS, slips=1.0, checks=0.5).load()
    for task, plain in zip(tagged, SUMS.load(), strict=True):
        path = GRAMMAR.read(task.demonstrations[0])
        assert path.answer == task.answer == plain.answer
        kinds = [step.kind for step in path.steps]
        place = kinds.index("fix")
        assert kinds.count("fix") == 1 and kinds[place - 1] == "check" and path.steps[place - 1].text == "no"
        wrong, right = path.steps[place - 2].text, path.steps[place].text
        assert wrong[:-1] == right[:-1] and wrong != right and right in plain.demonstrations[0]


def test_shares_and_seeds() -> None:
    def fixed(seed: int) -> list[bool]:
        return ["<fix>" in task.demonstrations[0] for task in TaggedSteps(tasks=SUMS, seed=seed).load()]

    assert 2 < sum(fixed(0)) < 18 and fixed(0) != fixed(1)


def test_a_demonstration_needs_steps_and_an_answer() -> None:
    with pytest.raises(UserError, match="write the steps apart by semicolons"):
        TaggedSteps(tasks=Arithmetic(size=3, digits=(1, 1)), slips=0.0)._tagged(
            replace(SUMS.load()[0], demonstrations=("74",)), 0
        )
    assert TaggedSteps(tasks=WordProblems(size=5)).load()[0].demonstrations
