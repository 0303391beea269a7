"""Topics with a rubric, in the prompt of some of them."""

import asyncio

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.rubric import Rubric
from posttrain.components.tasks.topics import Topics
from posttrain.types import Group
from tests.components.rewards.judging import attempt


def test_criteria_and_demonstrations() -> None:
    for task in Topics(size=40, shown=0.5).load():
        rows = task.fields["criteria"]
        facts = [row["criterion"] for row in rows if row["points"] > 0]
        assert len(rows) == 7 and len(set(facts)) == 6 and rows[-1]["points"] == -1
        assert task.answer == " ".join(facts) and rows[-1]["criterion"] not in facts
        lines = str(task.prompt).split("\n")
        if task.domain == "shown":
            assert lines[0].split() == facts and task.demonstrations == (task.answer,)
        else:
            named = task.demonstrations[0].split()
            assert lines[0].startswith("Topic ") and len(named) == 2 and set(named) < set(facts)


def test_the_answer_has_all_points_of_its_rubric() -> None:
    task = Topics(size=1).load()[0]
    group = Group(key="t", trajectories=(attempt(task.answer or "", task), attempt(task.demonstrations[0], task)))
    whole, part = asyncio.run(Rubric().score(group, RewardContext()))
    assert whole.value == 1.0 and 0.0 < part.value < 1.0
