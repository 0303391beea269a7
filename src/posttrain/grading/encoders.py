"""Runs a state encoder that a model wrote, in the sandbox, and checks what it returns.

Source: the encoder of LaRe, arXiv:2412.11120, by its release: code that maps a state and an action to a few factors is
executed on real observations, and every factor must have the right shape. The first function of the code is taken.

Differs: the function takes one step at a time, ``f(observation, action) -> [factor, ...]``, with lists of numbers,
since the sandbox has the standard library only; the release's takes arrays of a batch. Factors must be finite too.
"""

import ast
import json
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posttrain.sandbox import Limits, Pool, python_job

Steps = Sequence[tuple[Sequence[float], Sequence[float]]]
"""Observation and action of each step."""

WORKER = """
import json, sys
given = json.loads(sys.stdin.read())
space = {}
exec(compile(given["code"], "encoder", "exec"), space)
function = space[given["name"]]
print(json.dumps([list(map(float, function(*step))) for step in given["steps"]]))
"""


class BadEncoder(ValueError):
    """Why code is no encoder of these steps."""


def encoded(code: str, steps: Steps, pool: Pool, limits: Limits | None = None) -> NDArray[np.float64]:
    """[N, F] the factors of each step. Raises `BadEncoder` for code that fails, or returns anything else."""
    name = first_function(code)
    given = json.dumps({"code": code, "name": name, "steps": [[list(o), list(a)] for o, a in steps]})
    result = pool.run(python_job(WORKER.encode(), stdin=given.encode("ascii"), warm=True), limits or Limits())
    if result.outcome != "ok":
        last = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise BadEncoder(f"the encoder ended with {result.outcome}: {last or result.explanation}"[:500])
    try:
        rows = json.loads(result.stdout)
        widths = {len(row) for row in rows}
        numbers = all(isinstance(x, int | float) for row in rows for x in row)
    except (ValueError, TypeError, RecursionError):
        raise BadEncoder("the encoder printed something else than its factors") from None
    if len(rows) != len(steps):
        raise BadEncoder(f"the encoder gave factors of {len(rows)} steps, not of {len(steps)}")
    if len(widths) != 1 or not min(widths) or not numbers:
        found = ", ".join(map(str, sorted(widths)))
        raise BadEncoder(f"every step must have the same number of factors, at least one; found were {found}")
    if not all(math.isfinite(x) for row in rows for x in row):
        raise BadEncoder("a factor is not finite: no division by zero, no logarithm of zero")
    return np.array(rows, np.float64)


def first_function(code: str) -> str:
    """Name of the first function of a program. Raises `BadEncoder` where there is none."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadEncoder(f"the code cannot be parsed: {error}"[:300]) from None
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not found:
        raise BadEncoder("the code has no function")
    return found[0]
