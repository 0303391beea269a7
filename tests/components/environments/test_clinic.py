"""A patient to be diagnosed: the order of the checks, by hand."""

import asyncio
import math
from collections.abc import Sequence
from random import Random

import pytest

from posttrain.components.environments import Outcome
from posttrain.components.environments.clinic import Clinic, Consultation, Process, common, optimum, table
from posttrain.types import Task
from tests.components.environments.playing import play

TASK = Task(key="a", prompt="")
FULL = Clinic(process="answered", budget=5)


def right(environment: Clinic) -> int:
    """The disease of the task."""
    found = [
        d
        for d in range(environment.diseases)
        if play(environment, TASK, [named(d)])[2].solved  # type: ignore[union-attr]
    ]
    (disease,) = found
    return disease


def named(disease: int) -> str:
    return f"<answer>Diagnosis: d{disease}. Recommendation: r{disease}</answer>"


def rewards(environment: Clinic, *replies: str) -> list[float]:
    _, outcomes, verdict, _ = play(environment, TASK, replies)
    assert verdict is not None
    return [outcome.reward for outcome in outcomes] + [verdict.value] * (verdict.value != 0)


def test_the_rewards_of_turns() -> None:
    replies = ["<answer>s1?</answer>", "s1?", "<answer>s1 s2? s3?</answer>", "<answer>s1?</answer>"]
    assert rewards(FULL, *replies) == [1.0, -2.0, -2.0, -2.0]
    assert rewards(FULL, "<answer>Are you ill?</answer>", named(right(FULL))) == [-1.0, 0.0, 10.0]
    assert rewards(Clinic(budget=5), *replies) == [0.0] * 4


def test_the_word_without_a_colon_does_nothing() -> None:
    _, outcomes, *_ = play(FULL, TASK, ["<answer>Diagnosis d1</answer>"])
    assert (outcomes[0].reward, outcomes[0].done, outcomes[0].observation.text) == (0.0, False, "\n\n")


def test_the_end_of_the_budget() -> None:
    asks = [f"<answer>s{s}?</answer>" for s in range(5)]
    _, outcomes, *_ = play(FULL, TASK, asks)
    assert [outcome.reward for outcome in outcomes] == [1.0, 1.0, 1.0, 1.0, -5.0]
    assert outcomes[-1].done
    # A broken format is checked first, so that it does not end the dialogue.
    assert rewards(FULL, *asks[:4], "hm", "hm", named(right(FULL)))[4:] == [-2.0, -2.0, 0.0, 10.0]


@pytest.mark.parametrize("reply", ["<answer>s1?</answer>.", "<answer>s1?", "<answer>a</answer><answer>s1?</answer>"])
def test_a_broken_format(reply: str) -> None:
    _, (outcome,), *_ = play(FULL, TASK, [reply])
    assert (outcome.reward, outcome.valid) == (-2.0, False)


def test_information_in_bits() -> None:
    gain = Clinic(process="gain", diseases=4, symptoms=3, budget=9)
    total = sum(rewards(gain, *(f"<answer>s{s}?</answer>" for s in range(3))))
    rows = table(4, 3)
    assert len(set(rows)) == 4
    assert total == pytest.approx(2.0)  # four diseases to one are two bits


def test_overlap_of_characters() -> None:
    assert common("abcde", "ace") == 3
    assert common("", "ace") == 0
    disease = right(FULL)
    other = Clinic(process="answered", match="overlap", budget=5)
    # The words "d" and "" against "dN" and "rN", with N of one or two digits.
    _, score = rewards(other, "<answer>Diagnosis: d. Recommendation: </answer>")
    assert score == pytest.approx(5.0 / len(f"d{disease}"))
    assert rewards(FULL, "<answer>Diagnosis: d. Recommendation: </answer>") == [0.0]


def test_budgets_are_drawn_from_two_to_ten() -> None:
    texts = [play(Clinic(), TASK, ["<answer>s1?</answer>"], seed)[1][0].observation.text for seed in range(60)]
    assert {int(text.rpartition("/")[2].strip(".\n")) for text in texts} == set(range(2, 11))


def test_the_solver_diagnoses() -> None:
    async def solved() -> bool:
        async with Clinic(budget=10).open(TASK, Random(0).random) as instance:
            while True:
                text = await instance.solution()
                assert text is not None
                if (await instance.step(text)).done:
                    verdict = instance.verdict()
                    return verdict is not None and verdict.solved

    assert asyncio.run(solved())


async def best(environment: Clinic, budget: int, diseases: Sequence[int], replies: tuple[str, ...]) -> float:
    """The sum of the best returns over diseases that these replies do not distinguish: every way to go on is tried."""
    most = -math.inf
    questions = [f"<answer>s{s}?</answer>" for s in range(environment.symptoms)]
    for reply in (*questions, *(named(d) for d in range(environment.diseases))):
        total, seen = 0.0, dict[str, list[int]]()
        for disease in diseases:
            patient = Consultation(environment, disease, budget)
            outcome = Outcome()
            for text in (*replies, reply):
                outcome = await patient.step(text)
            total += outcome.reward + patient.verdict().value
            if not outcome.done:
                seen.setdefault(outcome.observation.text, []).append(disease)
        for own in seen.values():
            total += await best(environment, budget, own, (*replies, reply))
        most = max(most, total)
    return most


@pytest.mark.parametrize("process", ["none", "answered", "gain"])
@pytest.mark.parametrize("match", ["exact", "overlap"])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_the_optimum_is_the_best_of_all_doctors(process: Process, match: str, budget: int) -> None:
    environment = Clinic(diseases=11, symptoms=3, process=process, match=match)  # type: ignore[arg-type]
    found = asyncio.run(best(environment, budget, range(11), ())) / 11
    assert optimum(11, 3, budget, process, match) == pytest.approx(found)


def test_the_regret_is_what_a_dialogue_misses_of_the_optimum() -> None:
    """Four questions leave 16 of 30 diseases that can be named; with a fifth all can."""
    assert [optimum(30, 12, budget, "none", "exact") for budget in (1, 5, 6)] == pytest.approx([1 / 3, 16 / 3, 10])
    replies = ["<answer>s1?</answer>", "<answer>s1?</answer>", named(right(FULL))]
    expected = 4 + 16 / 3 - (1 - 2 + 10)
    assert play(FULL, TASK, replies)[3]["regret"] == pytest.approx(expected)
    assert optimum(1000, 1000, 10, "none", "exact") is None
    assert "regret" not in play(Clinic(diseases=900, symptoms=900, budget=9), TASK, [])[3]
