"""Small functions of numbers or lists, each in three independent forms, and copies with one planted fault.

A function has a description, three sources that compute the same, and what its argument is drawn from. The faults are
changes of one operator, constant or condition of the first form. A faulty copy whose results are the right ones on all
inputs that were tried counts as equal, and is left out. Loops are bounded by the argument, so every copy ends.
"""

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

NAME: Final = "f"
"""What every function is called."""
KS: Final = (2, 3, 5, 4, 6, 7)
"""Constants that a function is made with."""
Domain = tuple[int, int, int]
"""Least and largest number, and the longest list; 0 for a number."""


@dataclass(frozen=True)
class Shape:
    """A function with a constant ``K`` in its text."""

    name: str
    text: str
    domain: Domain
    forms: tuple[str, str, str]


@dataclass(frozen=True)
class Made:
    """A function, and copies with a fault."""

    name: str
    text: str
    domain: Domain
    right: tuple[str, str, str]
    wrong: tuple[str, ...]
    killing: tuple[Any, ...]
    """For each faulty copy, the first input that was found with another result."""
    equal: int
    """Faulty copies that were left out."""


NUMBERS: Final = (-9, 9, 8)
SHAPES: Final = (
    Shape(
        "above",
        "how many items of a list are above K",
        NUMBERS,
        (
            "def f(x):\n    n = 0\n    for a in x:\n        if a > K:\n            n += 1\n    return n\n",
            "def f(x):\n    return len([a for a in x if not a <= K])\n",
            "def f(x):\n    return sum(map(lambda a: K < a, x))\n",
        ),
    ),
    Shape(
        "clamped",
        "the number, but K at most and -K at least",
        (-20, 20, 0),
        (
            "def f(x):\n    if x > K:\n        return K\n    if x < -K:\n        return -K\n    return x\n",
            "def f(x):\n    return max(-K, min(K, x))\n",
            "def f(x):\n    return sorted((x, K, -K))[1]\n",
        ),
    ),
    Shape(
        "run",
        "the length of the longest run of items that are K or more",
        NUMBERS,
        (
            "def f(x):\n    best = n = 0\n    for a in x:\n        n = n + 1 if a >= K else 0\n"
            "        if n > best:\n            best = n\n    return best\n",
            "def f(x):\n    return max(map(len, ''.join('1' if a >= K else ' ' for a in x).split()), default=0)\n",
            "import itertools\ndef f(x):\n"
            "    runs = [len(list(g)) for k, g in itertools.groupby(x, lambda a: a >= K) if k]\n"
            "    return max(runs + [0])\n",
        ),
    ),
    Shape(
        "places",
        "the sum of the items at places that are multiples of K, the first place being 0",
        NUMBERS,
        (
            "def f(x):\n    total = 0\n    for i in range(len(x)):\n        if i % K == 0:\n            total += x[i]\n"
            "    return total\n",
            "def f(x):\n    return sum(x[::K])\n",
            "def f(x):\n    return sum(a * (i % K < 1) for i, a in enumerate(x))\n",
        ),
    ),
    Shape(
        "gaps",
        "whether each item is at least the one before it, and at most K more",
        (0, 9, 6),
        (
            "def f(x):\n    for i in range(1, len(x)):\n        gap = x[i] - x[i - 1]\n"
            "        if gap < 0 or gap > K:\n            return False\n    return True\n",
            "def f(x):\n    return all(0 <= b - a <= K for a, b in zip(x, x[1:]))\n",
            "def f(x):\n    return sorted(x) == x and max([b - a for a, b in zip(x, x[1:])], default=0) <= K\n",
        ),
    ),
    Shape(
        "second",
        "the second largest of the distinct items, -K if there is none",
        NUMBERS,
        (
            "def f(x):\n    x = sorted(set(x))\n    if len(x) < 2:\n        return -K\n    return x[-2]\n",
            "def f(x):\n    left = [a for a in x if a < max(x)]\n    return max(left) if left else -K\n",
            "def f(x):\n    a = b = None\n    for c in x:\n        if a is None or c > a:\n            a, b = c, a\n"
            "        elif c < a and (b is None or c > b):\n            b = c\n    return -K if b is None else b\n",
        ),
    ),
    Shape(
        "bands",
        "a tax: nothing up to 2*K, 2 for each unit above that up to 4*K, and 3 for each unit above that",
        (0, 40, 0),
        (
            "def f(x):\n    if x <= 2 * K:\n        return 0\n    if x <= 4 * K:\n        return (x - 2 * K) * 2\n"
            "    return 4 * K + (x - 4 * K) * 3\n",
            "def f(x):\n    return 2 * max(0, x - 2 * K) + max(0, x - 4 * K)\n",
            "def f(x):\n    return sum(3 if n > 4 * K else 2 for n in range(2 * K + 1, x + 1))\n",
        ),
    ),
    Shape(
        "divisible",
        "the place of the first item that is divisible by K, -1 if there is none",
        (1, 30, 5),
        (
            "def f(x):\n    for i in range(len(x)):\n        if x[i] % K == 0:\n            return i\n    return -1\n",
            "def f(x):\n    return next((i for i, a in enumerate(x) if not a % K), -1)\n",
            "def f(x):\n    hits = [a // K * K == a for a in x]\n    return hits.index(True) if True in hits else -1\n",
        ),
    ),
    Shape(
        "spread",
        "the largest minus the least of the items from -K to K, 0 if there is none",
        NUMBERS,
        (
            "def f(x):\n    x = [a for a in x if a >= -K and a <= K]\n    if not x:\n        return 0\n"
            "    return max(x) - min(x)\n",
            "def f(x):\n    y = sorted(filter(lambda a: abs(a) <= K, x))\n    return y[-1] - y[0] if y else 0\n",
            "def f(x):\n    best = 0\n    near = {a for a in x if a * a <= K * K}\n    for a in near:\n"
            "        for b in near:\n            best = max(best, a - b)\n    return best\n",
        ),
    ),
    Shape(
        "balance",
        "the items summed from left to right, but a sum below -K becomes -K at once",
        NUMBERS,
        (
            "def f(x):\n    total = 0\n    for a in x:\n        total += a\n        if total < -K:\n"
            "            total = -K\n    return total\n",
            "import functools\ndef f(x):\n    return functools.reduce(lambda s, a: max(-K, s + a), x, 0)\n",
            "def f(x):\n    return max([sum(x)] + [sum(x[i:]) - K for i in range(1, len(x) + 1)])\n",
        ),
    ),
)


def made(shape: Shape, k: int, faults: int, inputs: int, seed: int) -> Made:
    """A function with its constant, and faulty copies that differ on some of the inputs."""
    first, second, third = (_with(form, k) for form in shape.forms)
    rng = Random(f"faulty:{shape.name}:{k}:{seed}")
    tried = [*edges(shape.domain, constants(first)), *(drawn(shape.domain, rng) for _ in range(inputs))]
    function = compiled(first)
    wanted = [outcome(function, x) for x in tried]
    sources = sorted(faulty(first))
    rng.shuffle(sources)
    wrong, killing, equal = list[str](), list[Any](), 0
    for source in sources:
        if len(wrong) == faults:
            break
        copied = compiled(source)
        found = next((x for x, value in zip(tried, wanted, strict=True) if outcome(copied, x) != value), None)
        if found is None:
            equal += 1
            continue
        wrong.append(source)
        killing.append(found)
    text = shape.text.replace("K", str(k))
    right = (first, second, third)
    return Made(f"{shape.name}_{k}", text, shape.domain, right, tuple(wrong), tuple(killing), equal)


def _with(form: str, k: int) -> str:
    return ast.unparse(ast.parse(form.replace("K", str(k)))) + "\n"


def drawn(domain: Domain, rng: Random) -> Any:
    """A number, or a list of any length, evenly."""
    low, high, longest = domain
    if not longest:
        return rng.randint(low, high)
    return [rng.randint(low, high) for _ in range(rng.randint(0, longest))]


def constants(source: str) -> list[int]:
    """The whole numbers of a source, without regard to sign. Raises `SyntaxError` for what is no Python."""
    found = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return sorted({abs(value) for value in found if type(value) is int})


def near(domain: Domain, about: Sequence[int]) -> list[int]:
    """Numbers of a domain at its ends, at 0, and at the constants and one beside them, with either sign."""
    low, high, _ = domain
    found = [low, high, 0, -1, 1, *(sign * (c + d) for c in about for d in (-1, 0, 1) for sign in (1, -1))]
    return [n for n in dict.fromkeys(found) if low <= n <= high]


def edges(domain: Domain, about: Sequence[int]) -> list[Any]:
    """Inputs at the ends of a domain and at constants: numbers, or lists of one of them and of extreme lengths."""
    low, high, longest = domain
    numbers = near(domain, about)
    if not longest:
        return numbers
    return [[], *([n] for n in numbers), [low] * longest, [high] * longest, sorted(numbers)[:longest]]


def faulty(source: str) -> set[str]:
    """Every source with one change of an operator, a constant or a condition."""
    tree = ast.parse(source)
    found = set()
    for place, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            changed = copy.deepcopy(tree)
            change(next(n for i, n in enumerate(ast.walk(changed)) if i == place))
            found.add(ast.unparse(changed) + "\n")
    return found - {ast.unparse(tree) + "\n"}


_COMPARED: Final[dict[type, tuple[type, ...]]] = {
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Eq: (ast.NotEq,),
}
_COMPUTED: Final[dict[type, tuple[type, ...]]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Sub),
    ast.Mod: (ast.FloorDiv,),
}
_NAMED: Final = {"max": "min", "min": "max"}


def _changes(node: ast.AST) -> list[Callable[[Any], None]]:
    """What can be changed in a node."""

    def to(field: str, value: Any) -> Callable[[Any], None]:
        return lambda other: setattr(other, field, value)

    match node:
        case ast.Compare(ops=[op]):
            return [to("ops", [kind()]) for kind in _COMPARED.get(type(op), ())]
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            return [to("op", kind()) for kind in _COMPUTED.get(type(op), ())]
        case ast.BoolOp(op=op):
            return [to("op", ast.Or() if isinstance(op, ast.And) else ast.And())]
        case ast.UnaryOp(op=ast.USub()):
            return [to("op", ast.UAdd())]
        case ast.Constant(value=bool() as value):
            return [to("value", not value)]
        case ast.Constant(value=int() as value):
            return [to("value", value + 1), to("value", value - 1)]
        case ast.Name(id=name) if name in _NAMED:
            return [to("id", _NAMED[name])]
        case ast.If(test=test):
            return [to("test", ast.UnaryOp(ast.Not(), copy.deepcopy(test)))]
    return []


def compiled(source: str) -> Callable[[Any], Any]:
    """The function of a source of this module."""
    space: dict[str, Any] = {}
    exec(compile(source, "function", "exec"), space)  # written here, not by a model
    function: Callable[[Any], Any] = space[NAME]
    return function


def outcome(function: Callable[[Any], Any], x: Any) -> tuple[str, Any]:
    """Type and value of its result for an input, or the name of what it raised."""
    try:
        value = function(list(x) if isinstance(x, list) else x)
    except Exception as error:  # a fault may raise anything
        return ("raised", type(error).__name__)
    return (type(value).__name__, value)
