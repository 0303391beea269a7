"""Calls for several programs at once have the results that each has alone."""

import asyncio

import pytest

from posttrain.grading.function_calls import called, called_each
from posttrain.sandbox import Limits, open_pool
from tests.components.rewards.programs import tier_for

PROGRAMS = (
    "def f(x):\n    return [x, {'a': x / 2}]",
    "def f(x):\n    return x if x < 2 else 1 // 0",
    "import os\ndef f(x):\n    if x == 2:\n        os._exit(0)\n    return x",
    "def f(x): return",
    "def f(x:",
    "import os\nos.write(1, b'[0, \"[0, [1]]\"]')\ndef f(x):\n    print('[1, 2]')\n    return 'text'",
    "def f(x):\n    while x == 2:\n        pass\n    return x",
)


@pytest.mark.slow
def test_programs_do_not_disturb_one_another() -> None:
    pool, limits, calls = open_pool(tier_for()), Limits(cpu_s=1.0, wall_s=120.0), ["f(1)", "f(2)", "f(3)"]

    async def both() -> None:
        suites = [calls, ["f(3)", " f(1)", "f("]]
        found = await called_each(PROGRAMS, suites, pool, limits)
        assert [len(own) for own in found] == [len(PROGRAMS)] * 2
        for own, suite in zip(found, suites, strict=True):
            for code, (_, outcomes) in zip(PROGRAMS, own, strict=True):
                assert outcomes == (await called(code, suite, pool, limits))[1], (code, suite)

    asyncio.run(both())
