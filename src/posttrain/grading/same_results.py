"""Whether two programs give the same results, run in the sandbox and compared outside of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from posttrain.grading.function_calls import called
from posttrain.grading.values import same
from posttrain.sandbox import Limits, Pool, Result


async def same_results(
    before: str, programs: Sequence[str], calls: Sequence[str], pool: Pool, limits: Limits
) -> list[bool | str]:
    """Of each program whether every call returns what it returns in `before`, or raises the same exception; or how the
    sandbox failed. Each is run in a sandbox of its own, `before` once, all at the same time.
    """
    first, *others = await asyncio.gather(*(called(code, calls, pool, limits) for code in (before, *programs)))
    if fault := _fault(first[0]):
        return [fault] * len(others)
    wanted = [first[1].get(number) for number in range(len(calls))]
    if None in wanted:
        return ["the reference program ends, or takes too long, in one of its calls"] * len(others)
    return [
        _fault(result) or all(_equal(own, outcomes.get(number)) for number, own in enumerate(wanted))
        for result, outcomes in others
    ]


def _fault(result: Result) -> str:
    return f"the sandbox failed: {result.explanation}" if result.outcome == "sandbox_error" else ""


def _equal(own: Any, other: Any) -> bool:
    if any(not isinstance(one, list) or len(one) != 2 for one in (own, other)):
        return False
    return bool(own[0] == other[0] and (same(other[1], own[1]) if own[0] == "value" else own[1] == other[1]))
