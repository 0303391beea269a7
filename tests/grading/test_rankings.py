"""Rankings of several candidates: what is read, and both rewards by hand."""

import pytest

from posttrain.grading.rankings import agreement, best_reward, format_reward, order_reward, read_ranking

GOLD = {"model-1": 3.0, "model-2": 1.0, "model-3": 2.0}
WHOLE = '{"scores": {"model-1": 3, "model-2": 1, "model-3": 2}, "best-to-worst": ["model-1", "model-3", "model-2"]}'


@pytest.mark.parametrize(
    "body",
    [
        WHOLE,
        f"```json\n{WHOLE}\n```",
        WHOLE.replace('"', "'"),
        "{scores: {model-1: 3, model-2: 1, model-3: 2,}, best-to-worst: ['model-1', 'model-3', 'model-2']}",
        f"I score them: {WHOLE} as asked.",
        WHOLE.replace("best-to-worst", "best-to-worse"),
    ],
)
def test_forms_that_are_read(body: str) -> None:
    found = read_ranking(f"<think>so {{}} </think>{body}")
    assert found.scores == GOLD and found.order == ("model-1", "model-3", "model-2")
    assert found.thought == "so {} " and found.keys == 2 and found.cut == body.startswith("I score")


@pytest.mark.parametrize("body", ["", "no", "[1, 2]", '{"scores": {"a": NaN}}', '{"scores": {"a": 1, "a": 2}}'])
def test_what_is_no_ranking(body: str) -> None:
    assert read_ranking(body).scores == {}
    assert read_ranking('{"scores": {"a": true, "b": "3", "c": 2}}').scores == {"c": 2.0}


@pytest.mark.parametrize(
    ("scores", "reward"),
    [
        ((3, 1, 2), 1.0),
        ((1, 3, 2), 0.0),  # all pairs reversed
        ((2, 2, 2), 0.5),
        ((3, 2, 1), 1 - 2 / 7),  # weights 3 (3 and 1), 2 and 2; one of weight 2 is reversed
        ((2, 1, 2), 1 - 1 / 7),  # a tie of weight 2 costs half
    ],
)
def test_order_by_hand(scores: tuple[int, int, int], reward: float) -> None:
    found = dict(zip(GOLD, map(float, scores), strict=True))
    assert order_reward(found, GOLD) == pytest.approx(reward)
    assert best_reward(found, GOLD) == float(scores[0] > max(scores[1:]))


def test_order_of_too_few_is_none() -> None:
    """The release gives 1 for these."""
    assert order_reward({}, GOLD) is None and order_reward({"model-1": 5.0, "other": 1.0}, GOLD) is None
    assert order_reward({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 3.0}) == 1.0 and best_reward({"a": 1.0}, GOLD) is None


def test_format_by_hand() -> None:
    """0.15 + 0.05 for a long thought, 0.2 JSON, 0.1 + 0.1 keys, 0.2 coverage, 0.2 agreement."""
    names = [*GOLD]
    assert format_reward(read_ranking(f"<think>{'x' * 51}</think>{WHOLE}"), names) == pytest.approx(1.0)
    assert format_reward(read_ranking(f"<think>x</think>{WHOLE}"), names) == pytest.approx(0.95)
    assert format_reward(read_ranking(f"<think>x</think>so {WHOLE}"), names) == pytest.approx(0.90)
    assert format_reward(read_ranking("<think>x"), names) == pytest.approx(0.05)
    part = read_ranking('{"scores": {"model-1": 3}}')
    assert format_reward(part, names) == pytest.approx(0.2 + 0.1 + 0.2 / 3)
    assert agreement(read_ranking(WHOLE.replace('["model-1", "model-3"', '["model-3", "model-1"'))) == pytest.approx(
        2 / 3
    )
