"""Encoder code in the sandbox: it runs, has one shape and finite numbers, or goes back to its writer."""

import asyncio
import json

import pytest

from posttrain.grading.encoder_writing import code_of, write_encoder
from posttrain.grading.encoders import BadEncoder, encoded, first_function
from posttrain.sandbox import Limits, Pool, open_pool
from tests.components.rewards.programs import tier_for

STEPS = [([1.0, 2.0], [0.5]), ([0.0, 3.0], [-1.0])]
GOOD = "import math\ndef factors(observation, action):\n    return [sum(observation), abs(action[0])]\n"


@pytest.fixture
def pool() -> Pool:
    return open_pool(tier_for() or "cgroup")


def test_factors_of_every_step(pool: Pool) -> None:
    assert encoded(GOOD, STEPS, pool).tolist() == [[3.0, 0.5], [3.0, 1.0]]
    assert first_function("x = 1\ndef one(): pass\ndef two(): pass\n") == "one"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return [1 / observation[0]]", "ZeroDivisionError"),
        ("return [1.0] if observation[0] else [1.0, 2.0]", "same number of factors"),
        ("return []", "at least one"),
        ("return [float('nan')]", "not finite"),
        ("return [float('inf')]", "not finite"),
        ("return 'ab'", "ValueError"),
        ("return None", "TypeError"),
        ("print('[[1], [1]]'); return [1.0]", "something else"),
        ("import os; os._exit(0)", "something else"),
        ("open('/etc/passwd').read(); return [missing]", "ended with"),
    ],
)
def test_what_is_no_encoder(pool: Pool, body: str, fault: str) -> None:
    with pytest.raises(BadEncoder, match=fault):
        encoded(f"def f(observation, action):\n    {body}\n", STEPS, pool)


@pytest.mark.slow
def test_it_ends_at_its_limit(pool: Pool) -> None:
    with pytest.raises(BadEncoder, match="timeout_cpu"):
        encoded("def f(o, a):\n    while True: pass\n", STEPS, pool, Limits(cpu_s=0.3))


@pytest.mark.parametrize("code", ["def f(:", "x = 1", "", "class A: pass"])
def test_code_without_a_function(code: str) -> None:
    with pytest.raises(BadEncoder):
        first_function(code)


def answer(code: str) -> str:
    return "Here: " + json.dumps({"understanding": "u", "analysis": "a", "functions": [code, "def other(): pass"]})


class Writer:
    """Answers in order, and keeps what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, int, float]]()

    async def __call__(self, prompt: str, n: int, temperature: float) -> list[str]:
        self.asked.append((prompt, n, temperature))
        return [self.answers.pop(0)] * n


@pytest.mark.slow
def test_candidates_a_summary_and_a_repair(pool: Pool) -> None:
    broken = "def f(o, a):\n    return [1 / o[0]]\n"
    writer = Writer(answer(broken), answer(broken), answer(GOOD))
    code = asyncio.run(write_encoder(writer, "ASK", lambda c: encoded(c, STEPS, pool)))
    assert code == GOOD
    assert [(n, t) for _, n, t in writer.asked] == [(5, 1.0), (1, 0.3), (1, 0.3)]
    assert (
        "5. Here" in writer.asked[1][0] and "ZeroDivisionError" in writer.asked[2][0] and broken in writer.asked[2][0]
    )


def test_one_candidate_has_no_summary_and_rounds_end(pool: Pool) -> None:
    writer = Writer(*["no code"] * 5)
    with pytest.raises(BadEncoder, match=r"after 5 rounds.*no function"):
        asyncio.run(write_encoder(writer, "ASK", lambda c: encoded(c, STEPS, pool), candidates=1))
    assert len(writer.asked) == 5


def test_code_of_an_answer() -> None:
    assert code_of(answer("def f(): pass")) == "def f(): pass"
    assert code_of("```python\ndef f(): pass\n```") == "def f(): pass\n"
    assert code_of('```json\n{"functions": ["def g(): pass"]}\n```') == "def g(): pass"
    for text in ("", "{}", '{"functions": []}', '{"functions": [1]}', "{" * 5000):
        with pytest.raises(BadEncoder):
            code_of(text)
