"""A brief with missing facts: what an answer adds, by hand."""

import asyncio
from collections.abc import Sequence
from itertools import product
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.components.environments.briefs import Briefs
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")


def missing() -> list[int]:
    """The facts that the brief does not have."""
    text = play(Briefs(), TASK, [])[0].text
    shown = {int(number) for number in text.removeprefix("Known:").split()}
    return sorted(set(range(1, 21)) - shown)


def rewards(process: str, *questions: str, cost: float = 0.0) -> list[float]:
    """The reward of each turn."""
    environment = Briefs(process=process, cost=cost)  # type: ignore[arg-type]
    return [outcome.reward for outcome in play(environment, TASK, questions)[1]]


def test_only_what_is_hidden_and_new_is_rewarded() -> None:
    a, b, *_ = missing()
    visible = next(fact for fact in range(1, 21) if fact not in missing())
    asked = [f"?{a}", f"?{a}", f"?{visible}", f"?{a} {b}", "?99", "which?"]
    assert len(missing()) == 6
    assert rewards("binary", *asked) == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert rewards("answered", *asked) == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert rewards("none", *asked) == [0.0] * 6


def test_several_facts_at_once() -> None:
    a, b, c, *_ = missing()
    assert rewards("count", f"?{a} {b} {c} {a}") == [3.0], "one that is named twice counts once"
    assert rewards("fraction", f"?{a} {b} {c}") == [0.5]
    single = [rewards("graded", f"?{fact}")[0] for fact in (a, b, c)]
    assert set(single) <= {1.0, 0.7, 0.4}
    assert rewards("graded", f"?{a} {b} {c}") == [pytest.approx(max(single) - 0.4)]
    assert rewards("count", f"?{a}", "no", ".", cost=0.1) == [0.9, -0.1, 0.0]


def test_it_ends_when_all_is_known_and_the_measures_are_of_questions() -> None:
    facts = missing()
    visible = next(fact for fact in range(1, 21) if fact not in facts)
    asked = [f"?{visible}", f"?{facts[0]}", f"?{facts[0]}", f"?{' '.join(map(str, facts))}", "?1"]
    _, outcomes, verdict, measures = play(Briefs(), TASK, asked)
    assert [outcome.done for outcome in outcomes] == [False, False, False, True]
    assert verdict is not None and (verdict.value, verdict.solved) == (1.0, True)
    assert measures == {"coverage": 1.0, "repeats": 0.5, "visible": 0.25, "regret": 0.0}
    _, outcomes, verdict, _ = play(Briefs(process="count"), TASK, [f"?{facts[0]}", "."])
    assert outcomes[-1].done and verdict is not None and (verdict.value, verdict.solved) == (0.0, False)


def test_nothing_hidden_is_known_at_once_and_too_much_is_refused() -> None:
    _, (outcome,), verdict, measures = play(Briefs(hidden=0), TASK, ["?1"])
    assert outcome.done and verdict is not None and verdict.solved and measures["coverage"] == 1.0
    with pytest.raises(ValidationError, match="21 facts are hidden, and there are 20"):
        Briefs(hidden=21)


def test_its_own_player_has_one_question_for_each() -> None:
    async def turns() -> int:
        async with Briefs().open(TASK, Random(0).random) as instance:
            for turn in range(9):
                if (await instance.step(await instance.solution() or "")).done:
                    assert instance.verdict().solved  # type: ignore[union-attr]
                    return turn + 1
        return 0

    assert asyncio.run(turns()) == 6


async def returns(environment: Briefs, questions: Sequence[str]) -> list[tuple[float, float]]:
    """Return and regret of every sequence of questions."""
    found = []
    for turns in product(questions, repeat=environment.horizon):
        async with environment.open(TASK, lambda: 0.0) as instance:
            instance.begin()
            total = 0.0
            for text in turns:
                outcome = await instance.step(text)
                total += outcome.reward
                if outcome.done:
                    break
            verdict = instance.verdict()
            assert verdict is not None
            found.append((total + verdict.value, instance.measures()["regret"]))
    return found


@pytest.mark.parametrize("process", ["binary", "count", "fraction", "graded", "answered", "none"])
@pytest.mark.parametrize("hidden", [0, 1, 2, 3])
@pytest.mark.parametrize("cost", [0.0, 0.5, 1.5])
def test_the_optimum_is_the_best_of_all_dialogues(process: str, hidden: int, cost: float) -> None:
    environment = Briefs(facts=3, hidden=hidden, horizon=2, process=process, cost=cost)  # type: ignore[arg-type]
    asked = ["?1", "?2", "?3", "?1 2", "?1 3", "?2 3", "?1 2 3", "no", "."]
    found = asyncio.run(returns(environment, asked))
    best = max(value for value, _ in found)
    assert min(regret for _, regret in found) == pytest.approx(0.0)
    assert [regret for _, regret in found] == pytest.approx([best - value for value, _ in found])
