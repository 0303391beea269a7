"""Ratings in one call: the form of the reply, the drawn order, and tasks without a rubric."""

from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.rated_together import RatedTogether, read_blocks
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Score, Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

TASK = Task(key="t", prompt="Print a sum.", answer="one", fields={"preference": "style"})


def block(rating: object) -> str:
    return f"Rating: {rating}\nRationale: because"


@pytest.mark.parametrize(
    ("reply", "ratings"),
    [
        (f"{block(4)}\n\n{block('2 of 5')}", [4, 2]),
        (f"\n{block(4)}\n  \n\n{block('N/A')}\n", [4, None]),
        (block(4), None),
        (f"{block(4)}\n\n{block(3)}\n\n{block(3)}", None),
        (f"{block(4)}\n\n{block('high')}", None),
        (f"{block(4)}\n\n{block(7)}", None),
        (f"{block(4)}\n\nthe second is poor", None),
        ("", None),
    ],
)
def test_a_reply_of_another_form_has_no_ratings(reply: str, ratings: list[int | None] | None) -> None:
    assert read_blocks(reply, 2) == ratings


class Judge(ScriptedSampler):
    """Rates by text, in the order in which it is shown them."""

    def __init__(self, ratings: dict[str, object], *, short: bool = False) -> None:
        super().__init__("judge")
        self.ratings, self.short, self.prompts = ratings, short, list[str]()

    async def write(self, prompt: Any, n: int, sampling: Sampling) -> list[str]:
        text = prompt[0]["content"]
        self.prompts.append(text)
        shown = [part.split(">>>\n", 1)[1].split("\n<<<END")[0] for part in text.split("<<<BEGIN ")[1:]]
        return ["\n\n".join(block(self.ratings[one]) for one in shown[self.short :])]


def rated(judge: Judge, *texts: str, step: int = 0, task: Task = TASK) -> list[Score]:
    context = RewardContext(samplers={"judge": judge}, step=step)
    return score_all(RatedTogether(role="judge"), *(attempt(text, task) for text in texts), context=context)


def test_the_order_is_undone() -> None:
    judge = Judge({"one": 1, "two": 3, "four": 5, "none": "N/A"})
    places = set()
    for step in range(8):
        scores = rated(judge, "one", "two", "four", "none", step=step)
        assert [score.value for score in scores[:3]] == [1.0, 3.0, 5.0] and scores[3].status == "error"
        assert [score.status for score in scores[:3]] == ["wrong", "wrong", "ok"]
        places.add(scores[0].explanation)
    assert len(places) > 1, "another order at another step"
    assert "follows the idioms" in judge.prompts[0] and judge.prompts[0].count("<<<BEGIN") == 4


def test_a_long_answer_is_cut_at_its_end_and_counted() -> None:
    judge = Judge({"on": 1, "tw": 3})
    context = RewardContext(samplers={"judge": judge}, as_given=True)
    answers = [attempt(text, TASK) for text in ("on", "two")]
    scores = score_all(RatedTogether(role="judge", longest=2), *answers, context=context)
    assert [score.value for score in scores] == [1.0, 3.0]
    assert [score.parts["cut"].value for score in scores] == [0.0, 1.0]
    assert scores[0].explanation.endswith("answer 1 of 2"), "in the order of an audit"


def test_too_few_blocks_leave_the_whole_group_without_ratings() -> None:
    scores = rated(Judge({"one": 1, "two": 3, "four": 5}, short=True), "one", "two", "four")
    assert {score.status for score in scores} == {"error"} and "has not 3 ratings" in scores[0].explanation


def test_a_rubric_of_the_task_is_shown_and_a_task_without_one_refused() -> None:
    own = Task(key="t", prompt="P", fields={"rubric": "Brevity: 1 long, 5 short."})
    judge = Judge({"one": 1})
    assert rated(judge, "one", task=own)[0].value == 1.0 and "Brevity" in judge.prompts[0]
    reward = RatedTogether(role="judge")
    with pytest.raises(UserError, match=r"preference 'styl'.*did you mean 'style'"):
        reward.check([Task(key="t", prompt="P", fields={"preference": "styl"})])


def test_another_reward_in_the_judges_place() -> None:
    [score] = score_all(RatedTogether(of=Match()), attempt("one", TASK))
    assert score.value == 1.0
    assert RatedTogether(of=Match()).roles == frozenset() and RatedTogether().roles == {"judge"}
