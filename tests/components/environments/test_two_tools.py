"""A search and a calculator, with a limit on calls."""

import asyncio
import re
from itertools import product

import pytest

from posttrain.components.environments.two_tools import TwoTools, fewest_calls
from posttrain.components.tasks.lookups import ITEMS, Lookups
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="", fields={"facts": {"kiwi": 47}})


def test_calls_are_answered_and_counted_if_executed() -> None:
    turns = ["<think>so</think><search>kiwi</search>", "<python>47+5</python>", "<answer>52</answer>"]
    _, outcomes, _, measures = play(TwoTools(), TASK, turns)
    assert [o.observation.text for o in outcomes[:2]] == [f" <result>\n{n}\n</result>" for n in (47, 52)]
    assert outcomes[2].done and measures == {"calls": 2.0, "search": 1.0, "python": 1.0}


def test_what_cannot_be_answered_is_an_error_and_not_executed() -> None:
    turns = ["<search>plum</search>", "</search>", "<python>4+</python>"]
    _, outcomes, _, measures = play(TwoTools(), TASK, turns)
    assert all("error" in o.observation.text and not o.valid and not o.done for o in outcomes)
    assert measures == {"calls": 3.0, "search": 0.0, "python": 0.0}


def test_the_fourth_call_ends_the_rollout_without_an_answer() -> None:
    call = "<search>kiwi</search>"
    _, outcomes, _, measures = play(TwoTools(), TASK, [call] * 5)
    assert [o.done for o in outcomes] == [False] * 3 + [True] and outcomes[3].observation.text == ""
    assert measures["search"] == 3.0


def test_only_the_last_call_of_a_turn_counts() -> None:
    _, (outcome,), _, measures = play(TwoTools(), TASK, ["<search>x</search> <result>9</result><search>kiwi</search>"])
    assert "47" in outcome.observation.text and measures["calls"] == 1.0


async def shown_by(calls: tuple[str, ...], task: Task) -> list[str]:
    """What the last of some calls shows, as an instance answers them; empty where it is an error."""
    instance = TwoTools().instance(task, lambda: 0.5)
    texts = [(await instance.step(call)).observation.text for call in calls]
    return re.findall(r"<result>\n(?!error)(.*)\n</result>", texts[-1])


def fewest_by_trying(task: Task) -> int:
    """The fewest calls by all sequences: each item that is known, and one operation on any two numbers seen so far."""

    async def run() -> int:
        plans: list[tuple[tuple[str, ...], frozenset[str]]] = [((), frozenset(re.findall(r"[0-9]+", str(task.prompt))))]
        for length in range(1, 4):
            longer = []
            for plan, numbers in plans:
                sums = (f"<python>{a}{o}{b}</python>" for a, b in product(sorted(numbers), repeat=2) for o in "+-*/")
                for call in (*(f"<search>{item}</search>" for item in ITEMS), *sums):
                    shown = await shown_by((*plan, call), task)
                    if shown == [task.answer]:
                        return length
                    if shown:
                        longer.append(((*plan, call), numbers | set(shown)))
            plans = longer
        return 0

    return asyncio.run(run())


def test_the_fewest_calls_are_those_of_all_sequences_of_calls() -> None:
    tasks = Lookups(size=60, maths=0.3).load()
    kinds = {(task.domain, " plus " in str(task.prompt)): task for task in tasks}
    assert len(kinds) == 3
    found = {kind: fewest_by_trying(task) for kind, task in kinds.items()}
    assert found == {("questions", True): 2, ("questions", False): 1, ("maths", True): 1}
    for kind, task in kinds.items():
        assert fewest_calls(str(task.prompt), task.fields["facts"], task.answer or "", 3) == found[kind]


@pytest.mark.parametrize(
    ("question", "answer", "most", "fewest"),
    [
        ("kiwi?", "47", 3, 1),
        ("kiwi minus fig?", "39", 3, 3),
        ("kiwi minus fig?", "39", 2, None),
        ("3 divided by 6?", "1/2", 3, 1),
        ("who is kiwi?", "nobody", 3, None),
        ("plum plus 5?", "52", 3, None),
        ("5?", "5", 3, None),
    ],
)
def test_the_fewest_calls_by_hand(question: str, answer: str, most: int, fewest: int | None) -> None:
    assert fewest_calls(question, {"kiwi": 47, "fig": 8}, answer, most) == fewest


def test_regret_is_turns_beyond_the_fewest_calls_and_the_answer() -> None:
    task = Task(key="a", prompt="kiwi plus 5?", answer="52", fields={"facts": {"kiwi": 47}})
    search, program, right = "<search>kiwi</search>", "<python>47+5</python>", r"<answer>\boxed{52}</answer>"

    def regret(*turns: str) -> float:
        return play(TwoTools(), task, turns)[3]["regret"]

    assert regret(search, program, right) == 0.0
    assert regret(search, program, program, "<answer>52</answer>") == 1.0
    assert regret(search, program, "<answer>53</answer>") == regret("hm") == regret(*[search] * 4) == 2.0
    assert regret(right) == 0.0, "a player who knows it"
