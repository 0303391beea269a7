"""Rejective fine-tuning: which answers are learned from, and which tasks are left out."""

import asyncio

from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.rejected import Rejected
from posttrain.types import Task
from tests.builders import ScriptedSampler

TASKS = [Task(key=f"t{i}", prompt=f"What is {i}?", answer="x", demonstrations=("old",)) for i in range(40)]


def row(right: list[str], solved: int, scored: int = 3, hinted: tuple[str, ...] = ()) -> dict[str, object]:
    return {"right": right, "solved": solved, "scored": scored, "hinted": list(hinted)}


def test_too_easy_and_too_hard_tasks_are_left_out_and_hints_help_the_hard_ones() -> None:
    rows = [row(["a"], 3), row(["a", "b"], 2), row([], 0), row([], 0, hinted=("h",)), row([], 0, scored=0)]
    chosen = Rejected(reward=Regex(pattern="x")).choose(TASKS[:5], rows)
    assert [(t.key, t.demonstrations) for t in chosen.tasks] == [("t1", ("a", "b")), ("t3", ("h",))]
    assert chosen.tasks[1].prompt == "What is 3?", "the solution is not in the prompt that is learned"
    assert [own["hinted"] for own in chosen.tasks[1].fields["origin"]] == [True]
    assert "1 of them with the solution in the prompt; 1 are too easy, all of 3 right, 2 have none" in chosen.summary
    assert "1 could not be scored" in chosen.summary


def test_what_is_sampled_is_scored_and_wrong_answers_are_rejected() -> None:
    selection = Rejected(reward=Regex(pattern="[a-m]$"), hint="{question} It is {answer}.", first=20)
    sampler = ScriptedSampler("policy")
    measured = asyncio.run(selection.measure(TASKS, {"policy": sampler}))
    assert len(measured) == 20 and len(sampler.completions) == 20 * 4
    for own in measured:
        assert all("a" <= text[-1] <= "m" for text in [*own["right"], *own["hinted"]])
        assert own["solved"] >= len(own["right"]) and own["scored"] == 3
    chosen = selection.choose(TASKS, measured)
    assert 0 < len(chosen.tasks) < 20 and all("old" not in task.demonstrations for task in chosen.tasks)
    plain = asyncio.run(Rejected(reward=Regex(pattern="[a-m]$"), hint=None).measure(TASKS[:4], {"policy": sampler}))
    assert all(own["hinted"] == [] for own in plain)
