"""Orders of passages: the sheet's values, what is no order, and what the release lets through."""

from math import log2

import pytest

from posttrain.components.rewards.reranked import Reranked
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import judge

ITEM = Task(key="k", prompt="q", fields={"relevant": [2, 4], "order": [2, 4, 1, 3]})


def value(answer: str, reward: Reranked | None = None, item: Task = ITEM) -> float:
    return judge(reward or Reranked(), f"<think>x</think><answer>{answer}</answer>", item).value


def test_values_by_hand() -> None:
    assert value("[2] > [4] > [1] > [3]") == pytest.approx(1.3)
    # relevant on top in the other order: overlap 0, 1, 2/3 + 1/3 = 1, 1
    assert value("4>2>1>3") == pytest.approx(1.2 + 0.1 * 3 / 4)
    # relevant on ranks 1 and 3: overlaps 1, 1/2, 1, 1
    assert value("2,1,4,3") == pytest.approx(1.5 / (1 + 1 / log2(3)) + 0.2 + 0.1 * 3.5 / 4)
    first = Reranked(at=1, recall=1.0, overlap=0.0)
    assert value("2 1 4 3", first) == pytest.approx(1.5)  # half of the relevant ones are among the first
    assert value("4>2>1>3", Reranked(recall=0.0, overlap=0.0)) == 1.0


def test_what_is_correct() -> None:
    for answer, status in (("4>2>1>3", "ok"), ("2>1>4>3", "wrong"), ("2>4", "wrong")):
        assert judge(Reranked(), f"<think></think><answer>{answer}</answer>", ITEM).status == status
    score = judge(Reranked(), "<think></think><answer>4>2>1>3</answer>", ITEM)
    assert score.parts["ndcg"].value == 1.0 and score.parts["overlap"].value == pytest.approx(0.75)


@pytest.mark.parametrize(
    "answer",
    [
        "2>4>1",
        "2>4>1>3>3",
        "2>2>4>1",
        "2>4>1>9",
        "0>2>4>1",
        "passage 2, then 4, 1 and 3",
        "2>4>1>3 (4 of 4 ranked)",
        "",
        "-",
    ],
)
def test_no_order_has_no_value(answer: str) -> None:
    assert value(answer) == 0.0


@pytest.mark.parametrize("text", ["2>4>1>3", "<answer>2>4>1>3</answer>", "<think>x</think><answer>2>4>1>3", ""])
def test_without_tags(text: str) -> None:
    assert judge(Reranked(), text, ITEM).value == -1.0


def test_what_the_release_lets_through() -> None:
    loose = Reranked(strict=False)
    assert value("2 then 4, 1 and 3", loose) == pytest.approx(1.3)  # digits in words
    # 9 is dropped from the ranks that count, and takes a place of the overlap
    assert value("9>2>4>1", loose) == pytest.approx(1.0 + 0.2 + 0.1 * (0 + 1 / 2 + 2 / 3 + 3 / 4) / 4)
    wrapped = Task(key="k", prompt="q", fields={"relevant": [4], "order": [4, 1, 2, 3]})
    assert value("0>1>2>3", loose, wrapped) == pytest.approx(1.2 + 0.1 * (0 + 1 / 2 + 2 / 3 + 3 / 4) / 4)
    assert value("2>2>4>1", loose) == 0.0 == value("2>4>1", loose)
    assert all(value(cheat) == 0.0 for cheat in ("9>2>4>1", "0>2>4>1", "2 then 4, 1 and 3"))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"relevant": [1]},
        {"relevant": [], "order": [1, 2]},
        {"relevant": [3], "order": [1, 2]},
        {"relevant": [1], "order": [1, 3]},
        {"relevant": [1], "order": [1, 1]},
        {"relevant": [True], "order": [1, 2]},
        {"relevant": "1", "order": "12"},
    ],
)
def test_a_task_needs_relevant_passages_and_an_order(fields: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"task k: (order|relevant) is .*leave out queries"):
        Reranked().check([Task(key="k", prompt="q", fields=fields)])


def test_more_relevant_passages_than_ranks() -> None:
    many = Task(key="k", prompt="q", fields={"relevant": [*range(1, 12)], "order": [*range(1, 13)]})
    answer = ">".join(map(str, range(1, 13)))
    assert value(answer, item=many) == pytest.approx(1.0 + 0.2 * 10 / 11 + 0.1)


def test_gold_without_an_answer_has_relevant_passages_first() -> None:
    own = Task(key="g", prompt="p", fields={"relevant": [3, 1], "order": [2, 3, 1, 4]})
    gold = Reranked().gold(own)
    assert gold is not None and gold.answer == "[3] > [1] > [2] > [4]"
    assert judge(Reranked(), gold.form.replace("{answer}", gold.answer), own).status == "ok"
