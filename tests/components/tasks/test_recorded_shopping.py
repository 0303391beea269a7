"""Visits to a shop: the recorded action is what the text of the prompt demands, read a second time."""

import json
from collections import Counter

from posttrain.components.rewards.next_action import NextAction
from posttrain.components.tasks.recorded_shopping import COLOURS, GOODS, OTHERS, RecordedShopping
from tests.components.rewards.judging import judge


def demanded(prompt: str) -> dict[str, str]:
    """The action by the rules, from the text alone."""
    lines = prompt.removesuffix("\n:").splitlines()
    wanted, _, most = lines[0].removeprefix("want ").partition(" for ")
    page, _, shown = lines[-1].partition(": ")
    if page == "home":
        return {"type": "type_and_submit", "name": "search", "text": wanted}
    names = shown.split("; ")
    if page == "item":
        names = ["add"] if int(names[0].removeprefix("price ")) <= int(most) else []
    fitting = [name for name in names if name == {"results": wanted, "item": "add", "cart": "buy"}.get(page)]
    return {"type": "click", "name": fitting[0]} if fitting else {"type": "terminate"}


def test_the_recorded_action_follows_from_the_prompt() -> None:
    tasks = RecordedShopping(size=1000, seed=3).load()
    for task in tasks:
        assert json.loads(task.answer or "") == demanded(str(task.prompt)) == task.fields["target"]
    types = Counter(task.domain for task in tasks)
    assert types.keys() == {"click", "type_and_submit", "terminate"} and min(types.values()) > 150
    assert len({*OTHERS, *(f"{a} {b}" for a in COLOURS for b in GOODS)}) == 50


def test_demonstrations_end_the_visit_or_have_the_recorded_action() -> None:
    tasks = RecordedShopping(size=300, right=0.3).load()
    scores = [judge(NextAction(levels="binary"), task.demonstrations[0], task) for task in tasks]
    assert {score.value for score in scores} == {0.5, 1.5}
    right = [score.status == "ok" or task.domain == "terminate" for score, task in zip(scores, tasks, strict=True)]
    assert 0.4 < sum(right) / 300 < 0.7  # 0.3, and visits that do end there
    all_right = RecordedShopping(size=50, right=1.0, pages=(2, 4)).load()
    assert all(judge(NextAction(levels="binary"), t.demonstrations[0], t).status == "ok" for t in all_right)
    assert {len(task.fields["pages"]) for task in all_right} == {2, 3, 4}
