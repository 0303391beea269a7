"""Points of criteria, by words and by a judge."""

import math
from typing import Any

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.rubric import Rubric
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, judge, score_all

ROWS = [
    {"criterion": "names the lamp", "points": 3, "words": ["lamp"]},
    {"criterion": "names tree and cat", "points": 1, "words": ["tree", "Cat"]},
    {"criterion": "names the sea", "points": -2, "words": ["sea"]},
]


def of(rows: Any) -> Task:
    return Task(key="t", prompt="Which?", fields={"criteria": rows})


@pytest.mark.parametrize(
    ("text", "value"),
    [("a lamp", 0.75), ("lamp, tree; CAT", 1.0), ("tree", 0.0), ("lamps", 0.0), ("lamp sea", 0.25), ("sea", -0.5)],
)
def test_points_of_what_is_satisfied_over_positive_points(text: str, value: float) -> None:
    score = judge(Rubric(), text, of(ROWS))
    assert score.value == value and (score.status == "ok") == (value == 1.0)


def test_half_of_the_points() -> None:
    rows = [{"criterion": word, "points": 2, "words": [word]} for word in ("lamp", "tree")]
    score = judge(Rubric(correct_at=0.5), "a tree", of(rows))
    assert score.value == 0.5 and score.status == "ok" and score.explanation == "2 of 4 points: tree"


def test_without_positive_points_it_is_zero() -> None:
    rows = [{"criterion": "sea", "points": -2, "words": ["sea"]}]
    assert judge(Rubric(), "sea", of(rows)).value == 0.0 and judge(Rubric(), "x", of(rows)).value == 0.0


class Replies(ScriptedSampler):
    """A judge with these replies, in order."""

    def __init__(self, *replies: str) -> None:
        super().__init__("judge")
        self.replies, self.prompts = list(replies), list[str]()

    async def write(self, prompt: Any, n: int, sampling: Sampling) -> list[str]:
        self.prompts.append(prompt[0]["content"])
        return [self.replies.pop(0)]


def by_judge(*replies: str, temperature: float = 1.0) -> tuple[Any, Replies]:
    rows = [{"criterion": "is polite", "points": 1}, {"criterion": "is rude", "points": -1}]
    writer = Replies(*replies)
    rubric = Rubric(role="judge", tries=2, sampling=Sampling(temperature=temperature))
    [score] = score_all(rubric, attempt("Hello.", of(rows)), context=RewardContext(samplers={"judge": writer}))
    return score, writer


def test_a_judge_says_yes_or_no_to_one_criterion_at_a_time() -> None:
    score, writer = by_judge("Yes.", "I think no")
    assert score.value == 1.0 and ["is polite" in p for p in writer.prompts] == [True, False]
    assert by_judge("hm", "yes", "YES")[0].value == 0.0, "a second try, and the negative one subtracts"


def test_a_long_answer_is_cut_at_its_end_and_counted() -> None:
    box = Replies("yes", "yes")
    context = RewardContext(samplers={"judge": box})
    task = of([{"criterion": "is polite", "points": 1}])
    scores = score_all(Rubric(role="judge", longest=3), attempt("abc", task), attempt("abcdef", task), context=context)
    assert [score.parts["cut"].value for score in scores] == [0.0, 1.0]
    assert "\nabc\n<<<END" in box.prompts[1]


def test_a_judge_without_a_verdict_is_an_error() -> None:
    score, _ = by_judge("hm", "yesterday")
    assert score.status == "error" and math.isnan(score.value)
    assert "criterion 'is polite': the judge's reply says neither yes nor no" in score.explanation
    assert len(by_judge("hm", temperature=0.0)[1].prompts) == 1, "a greedy judge replies the same again"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "has no list of criteria in the field 'criteria'"),
        ("lamp", "has no list of criteria"),
        ([], "has no list of criteria"),
        ([{"criterion": "a"}], "a criterion is"),
        ([{"criterion": "a", "points": True, "words": ["a"]}], "a criterion is"),
        ([{"criterion": "a", "points": 1}], "has no words that decide it, and there is no judge"),
    ],
)
def test_what_is_refused_before_anything_is_sampled(rows: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Rubric().check([of(rows)])
    assert judge(Rubric(), "a", of(rows)).status == "error"
