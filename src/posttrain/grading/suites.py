"""How good a suite of tests is: which of the known wrong solutions it kills, and in how many ways.

Source: SAGA and TCGBench (arXiv:2507.06920), sections 2 and 3. K is a table [tests, wrong solutions], true where a test
kills a solution. The detection rate is the share of solutions that some test kills; the verifier accuracy of a suite is
1 if all are killed. The pattern of a test is its row; DEPC is the number of distinct patterns with a kill, and the
diversity that number over the number of tests.

The paper's saturation, 1 - (1 - p)^n_eff with n_eff = n / (1 + (n - 1) rho), treats correlated tests as fewer
independent ones. It is a heuristic and no upper bound: with p = 0.2 and rho = 0.1, kill probabilities from a Beta
distribution give .97 at 50 tests, and the formula .85.
"""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from posttrain.grading.values import Tree, literal, tree_of

LONGEST_TEST: Final = 2000
"""Most characters of the line of a test."""
Kills = NDArray[np.bool_]
"""[tests, wrong solutions]"""


def detection_rate(kills: Kills) -> float:
    """Share of the wrong solutions that some test kills; NaN without a solution, 0 without a test."""
    return float(kills.any(axis=0).mean()) if kills.shape[1] else math.nan


def verifies(kills: Kills) -> bool:
    """Whether every wrong solution is killed."""
    return bool(kills.any(axis=0).all())


def patterns(kills: Kills) -> int:
    """DEPC: the number of distinct rows with a kill. A copy of a test adds none."""
    return len({row.tobytes() for row in kills if row.any()})


def diversity(kills: Kills) -> float:
    """DEPC over the number of tests; 0 without a test."""
    return patterns(kills) / len(kills) if len(kills) else 0.0


def area(accuracy: Sequence[float], fewest: int) -> float:
    """AUC@N: the mean of the curve of verifier accuracy from `fewest` to N tests, by trapezoids.

    `accuracy` has N numbers, of the first 1 to N tests. With `fewest` = N it is the last of them.
    """
    curve = np.asarray(accuracy[fewest - 1 :], np.float64)
    return float((curve[1:] + curve[:-1]).sum() / 2 / (len(curve) - 1)) if len(curve) > 1 else float(curve[-1])


def correlation(kills: Kills) -> float:
    """rho: the mean correlation of pairs of tests, at least 0; 0 where no two tests kill some but not all."""
    varied = kills[kills.any(axis=1) & ~kills.all(axis=1)].astype(np.float64)
    if len(varied) < 2:
        return 0.0
    rows = np.atleast_2d(np.corrcoef(varied))
    return max(0.0, float(rows[np.triu_indices(len(rows), 1)].mean()))


def effective(tests: int, rho: float) -> float:
    """n_eff: to how many independent tests n correlated ones amount."""
    return tests / (1.0 + (tests - 1) * rho)


def saturation(p: float, tests: int, rho: float) -> float:
    """The paper's estimate of the detection rate of n tests that each kill with probability p."""
    return float(1.0 - (1.0 - p) ** effective(tests, rho))


@dataclass(frozen=True, slots=True)
class NamedTest:
    """A call of a function with literals, and the tree of the result that it should have."""

    call: str
    expected: Tree


def named_tests(text: str, function: str, most: int) -> tuple[list[NamedTest], int]:
    """The distinct tests in lines ``assert f(1, [2]) == 3``, `most` from the first, and the number of other lines."""
    found: dict[str, NamedTest] = {}
    ignored = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        test = _named_test(line.strip(), function) if len(line) <= LONGEST_TEST else None
        if test is None:
            ignored += 1
        elif len(found) < most:
            found.setdefault(f"{test.call} {test.expected}", test)
    return list(found.values()), ignored


def _named_test(line: str, function: str) -> NamedTest | None:
    try:
        parsed = ast.parse(line).body
        match parsed:
            case [
                ast.Assert(
                    test=ast.Compare(
                        left=ast.Call(func=ast.Name(id=name), args=args, keywords=[]) as call,
                        ops=[ast.Eq()],
                        comparators=[expected],
                    )
                )
            ] if name == function:
                for argument in args:
                    literal(ast.unparse(argument))
                return NamedTest(ast.unparse(call), tree_of(literal(ast.unparse(expected))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return None


def solutions_fault(fields: Mapping[str, Any]) -> str:
    """What is missing in the solutions of a task; empty if nothing is."""
    for name, fewest in (("correct", 2), ("wrong", 1)):
        own = fields.get(name)
        if not isinstance(own, Sequence) or isinstance(own, str) or len(own) < fewest:
            number = "two or more independent solutions" if fewest == 2 else "one or more solutions"
            return f"has no field '{name}' with a list of {number}"
        if not all(isinstance(source, str) for source in own):
            return f"has a solution in '{name}' that is no text"
    if not isinstance(fields.get("function", "f"), str):
        return "has a field 'function' that is no name"
    return ""
