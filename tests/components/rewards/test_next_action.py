"""Actions of a shopper: every level by hand, cheats, and forms without reward."""

import json

import pytest

from posttrain.components.rewards.next_action import NextAction
from posttrain.errors import UserError
from posttrain.grading.similarity import rouge_l
from posttrain.types import Task
from tests.components.rewards.judging import judge

CLICK = {"type": "click", "name": "add the blue tea cup"}
SUBMIT = {"type": "type_and_submit", "name": "search box", "text": "green tea cup"}
END = {"type": "terminate"}
ONE = NextAction(scale=10.0)


def task(action: object) -> Task:
    return Task(key="k", prompt="p", answer=action if isinstance(action, str) else json.dumps(action))


def said(action: object) -> str:
    return json.dumps({"rationale": "so", "action": action})


@pytest.mark.parametrize(
    ("wanted", "found", "value"),
    [
        (CLICK, CLICK, 0.5 + 0.3 + 0.2 + 10),
        (CLICK, {**CLICK, "name": "Add the  blue tea cup"}, 11.0),
        # 4 words of 4 and 5 in common: 2 * 4 / 9 = .889
        (CLICK, {**CLICK, "name": "add the blue cup"}, 1.0 + 10 * 8 / 9),
        (CLICK, {**CLICK, "name": "add the red cup"}, 1.0),  # 2 * 3 / 9 is not above .75
        (CLICK, {**CLICK, "name": ""}, 0.8),
        (CLICK, {"type": "click"}, 0.8),
        (CLICK, SUBMIT, 0.5),
        (CLICK, END, 0.5),
        (SUBMIT, SUBMIT, 0.5 + 0.3 + 0.1 + 0.1 + 0.1 + 10),
        (SUBMIT, {**SUBMIT, "text": "tea"}, 0.5 + 0.3 + 0.1 + 0.1 + 0.1),
        (SUBMIT, {**SUBMIT, "name": "buy"}, 0.5 + 0.3 + 0.1 + 0.1 + 10),
        (SUBMIT, {"type": "type_and_submit", "text": "green tea cup"}, 0.5 + 0.3 + 0.1 + 10),
        (SUBMIT, {"type": "type_and_submit"}, 0.8),
        (END, END, 0.8),
        (END, CLICK, 0.5),
    ],
)
def test_levels_by_hand(wanted: object, found: object, value: float) -> None:
    assert judge(ONE, said(found), task(wanted)).value == pytest.approx(value)


def test_what_is_correct_and_the_reward_of_a_whole_action() -> None:
    binary = NextAction(levels="binary")
    for found, status, value in ((CLICK, "ok", 1.5), ({**CLICK, "name": "add the blue cup"}, "wrong", 0.5)):
        assert judge(NextAction(), said(found), task(CLICK)).status == status
        assert judge(binary, said(found), task(CLICK)).value == value
    assert judge(binary, said(END), task(END)).value == 1.5 and judge(binary, "{}", task(END)).value == 0.0


def test_cheats() -> None:
    """Text that names everything, and ending at once, have less than what was done."""
    stuffed = {**CLICK, "name": "add the blue tea cup add the red tea cup open the cart search buy"}
    assert judge(NextAction(), said(stuffed), task(CLICK)).value == pytest.approx(1.0)
    assert judge(NextAction(), said(END), task(CLICK)).value == 0.5
    assert judge(NextAction(), said(CLICK), task(CLICK)).value == pytest.approx(1001.0)
    assert judge(NextAction(), said(END), task(END)).value == pytest.approx(0.8)


@pytest.mark.parametrize("scale", [0.0, 10.0, 1000.0])
def test_the_scale_is_one_number_for_all_tasks(scale: float) -> None:
    """A third-party program has .85 to 1.15 for each example, rewards at the threshold, and for rationales."""
    reward = NextAction(scale=scale)
    short, long = {"type": "click", "name": "buy"}, {"type": "click", "name": " ".join(f"word{n}" for n in range(60))}
    for action in (short, long):
        for prompt in ("p", "a page with many buttons " * 200):
            asked = Task(key=prompt[:9], prompt=prompt, answer=json.dumps(action), fields={"difficulty": len(prompt)})
            for rationale in ("", "so", "the shopper wants it " * 20):
                text = json.dumps({"rationale": rationale, "action": action})
                assert judge(reward, text, asked).value == 0.5 + 0.3 + 0.2 + scale
    wanted, found = {**CLICK, "name": "a b c d"}, {**CLICK, "name": "a b c x"}
    assert rouge_l("a b c d", "a b c x") == reward.similar == 0.75
    assert judge(reward, said(found), task(wanted)).value == 1.0, "0.75 is not above 0.75"


@pytest.mark.parametrize(
    "text",
    [
        "",
        json.dumps(CLICK),
        json.dumps({"rationale": 1, "action": CLICK}),
        json.dumps({"rationale": "", "action": CLICK, "more": 1}),
        said(CLICK) + said(CLICK),
        "so " + said(CLICK),
        said({"type": "buy"}),
        said({"type": ["click"]}),
        said({"type": "terminate", "name": "x"}),
        said({"type": "click", "name": True}),
        said({"type": "click", "name": "x", "text": "y"}),
        said(None),
        '{"rationale": "", "action": {"type": "click", "name": "a", "name": "b"}}',
        "[" * 100_000,
    ],
)
def test_a_broken_form_has_no_reward(text: str) -> None:
    score = judge(NextAction(), text, task(CLICK))
    assert (score.value, score.status) == (0.0, "wrong")


@pytest.mark.parametrize("answer", ["", "click", "{}", '{"type": "click"}', '{"type": "type_and_submit", "name": "a"}'])
def test_a_task_needs_an_action(answer: str) -> None:
    with pytest.raises(UserError, match=r"the answer of task 'k' .* it must be an action such as"):
        NextAction().check([task(answer)])


def test_words_of_other_scripts() -> None:
    assert rouge_l("чай", "чай") == 0.0 and rouge_l("чай", "Чай", letters=True) == 1.0


@pytest.mark.parametrize("action", [CLICK, SUBMIT, END])
def test_gold_is_the_recorded_action(action: object) -> None:
    own = task(action)
    gold = ONE.gold(own)
    assert gold is not None
    score = judge(ONE, gold.form.replace("{answer}", gold.answer), own)
    assert score.status == "ok" and score.value == judge(ONE, said(action), own).value
