"""Commands in the sandbox."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from posttrain.components.environments import Outcome, Verdict
from posttrain.components.environments.shell import QUESTIONS, Shell
from posttrain.types import Task
from tests.components.environments.playing import play
from tests.components.rewards.programs import tier_for


def tasks() -> dict[str, Task]:
    """A task of each question."""
    found: dict[str, Task] = {}
    for number in range(40):
        task = Task(key=str(number), prompt="")
        text = play(Shell(horizon=1), task, [])[0].text.strip()
        found.setdefault(text.removeprefix("Write ").removesuffix(" of a into out."), task)
    return found


@pytest.fixture
def shell() -> Shell:
    return Shell(weakest=tier_for("sh", "sort", "tail"))


def measured(shell: Shell, task: Task, turns: Sequence[str]) -> tuple[list[Outcome], Verdict, dict[str, float]]:
    async def run() -> tuple[list[Outcome], Verdict | None, dict[str, float]]:
        async with shell.open(task, Random(0).random) as instance:
            outcomes = [await instance.step(turn) for turn in turns]
            await instance.finish()
            return outcomes, instance.verdict(), instance.measures()

    outcomes, verdict, measures = asyncio.run(run())
    assert verdict is not None
    return outcomes, verdict, measures


def played(shell: Shell, task: Task, turns: Sequence[str]) -> tuple[list[Outcome], Verdict]:
    return measured(shell, task, turns)[:2]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_command_of_a_question_answers_it_and_another_does_not(shell: Shell, question: str) -> None:
    task = tasks()[question]
    for other, (command, _) in QUESTIONS.items():
        if other == question or other == "the number of lines":
            _, verdict = played(shell, task, [command, "done"])
            assert verdict.solved == (other == question)


def test_files_and_variables_last_and_output_is_of_the_last_command_alone(shell: Shell) -> None:
    task = tasks()["the lines in order"]
    outcomes, verdict = played(shell, task, ["x=out; echo one", "sort -n a > $x; echo two", "exit 0", "echo three"])
    assert [own.observation.text.strip() for own in outcomes] == ["one", "two", "", ""] and outcomes[-1].done
    assert verdict.solved, "what was written before the shell ended counts"


def test_regret_of_giving_up_is_above_that_of_a_late_success(shell: Shell) -> None:
    task = tasks()["the last line"]
    right = "tail -n 1 a > out"
    found = [
        measured(shell, task, turns)[2]
        for turns in ([right, "done"], ["cat a", "cat a", "cat a", right], ["done"], ["wc -l < a > out", "done"])
    ]
    assert [own["regret"] for own in found] == [0.0, 2.0, 3.0, 3.0]
    assert [own["calls"] for own in found] == [1.0, 4.0, 0.0, 1.0]


def test_what_fails_costs_its_turn(shell: Shell) -> None:
    short = Shell(weakest=shell.weakest, limits={"cpu_s": 0.2, "wall_s": 20.0}, shown=5, horizon=3)  # type: ignore[arg-type]
    turns = ["echo 123456789; cat nothing", "echo \0", "while :; do :; done"]
    outcomes, verdict = played(short, Task(key="a", prompt=""), turns)
    assert [own.valid for own in outcomes] == [False] * 3 and not verdict.solved
    assert outcomes[0].observation.text.strip() == "12345 (cut)" and "timeout_cpu" in outcomes[2].observation.text
