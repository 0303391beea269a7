"""Whether two programs give the same results, run in the sandbox and compared outside of it."""

from collections.abc import Sequence
from typing import Any

from posttrain.grading.function_calls import called
from posttrain.grading.values import same
from posttrain.sandbox import Limits, Pool


async def same_results(before: str, after: str, calls: Sequence[str], pool: Pool, limits: Limits) -> bool | str:
    """Whether every call returns the same value, or raises the same exception; or how the sandbox failed."""
    found = []
    for code in (before, after):
        result, outcomes = await called(code, calls, pool, limits)
        if result.outcome == "sandbox_error":
            return f"the sandbox failed: {result.explanation}"
        found.append([outcomes.get(number) for number in range(len(calls))])
    if None in found[0]:
        return "the reference program ends, or takes too long, in one of its calls"
    return all(map(_equal, *found))


def _equal(own: Any, other: Any) -> bool:
    if any(not isinstance(one, list) or len(one) != 2 for one in (own, other)):
        return False
    return bool(own[0] == other[0] and (same(other[1], own[1]) if own[0] == "value" else own[1] == other[1]))
