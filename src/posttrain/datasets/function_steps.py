"""Steps that change a number, or a list of numbers, before a small function reads it; each in three independent forms.

A step has the constant ``J`` in its texts. Steps of items change a number too; steps of lists leave items out. Several
of them, one after another, make a function harder, and make thousands of functions of one shape.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import Final

from posttrain.datasets.faulty_functions import KS, NUMBERS, SHAPES, Made, Shape, made

WIDE_KS: Final = (*KS, 8, 9, 10)
Forms = tuple[str, str, str]


@dataclass(frozen=True)
class Step:
    """What is done to ``x``; of an item, the forms are of the number ``a``."""

    text: str
    forms: Forms
    constants: tuple[int, ...]
    item: bool = False


def _range(low: int, high: int) -> tuple[int, ...]:
    return tuple(n for n in range(low, high + 1) if n)


STEPS: Final = (
    Step("add J to each number", ("a + J", "sum((J, a))", "a - -J"), _range(-9, 9), item=True),
    Step("multiply each number by J", ("a * J", "sum([a] * J)", "J * a"), _range(2, 9), item=True),
    Step(
        "take the remainder of each number by J",
        ("a % J", "a - a // J * J", "divmod(a, J)[1]"),
        _range(2, 12),
        item=True,
    ),
    Step(
        "take the distance of each number to J",
        ("abs(a - J)", "max(a, J) - min(a, J)", "a - J if a > J else J - a"),
        _range(-9, 9),
        item=True,
    ),
    Step(
        "lower numbers above J to J", ("min(a, J)", "a if a < J else J", "sorted((a, J))[0]"), _range(-5, 9), item=True
    ),
    Step(
        "raise numbers below J to J", ("max(a, J)", "a if a > J else J", "sorted((a, J))[1]"), _range(-9, 5), item=True
    ),
    Step(
        "leave out items above J",
        ("[a for a in x if a <= J]", "list(filter(lambda a: not a > J, x))", "[a for a in x if max(a, J) == J]"),
        _range(-5, 9),
    ),
    Step(
        "leave out items below J",
        ("[a for a in x if a >= J]", "list(filter(lambda a: not a < J, x))", "[a for a in x if min(a, J) == J]"),
        _range(-9, 5),
    ),
    Step(
        "leave out items equal to J",
        ("[a for a in x if not a == J]", "list(filter(lambda a: a != J, x))", "[a for a in x if a - J]"),
        _range(-9, 9),
    ),
    Step(
        "leave out multiples of J",
        ("[a for a in x if not a % J == 0]", "list(filter(lambda a: a % J, x))", "[a for a in x if a // J * J != a]"),
        _range(2, 7),
    ),
    Step(
        "keep the first J items",
        ("x[:J]", "[a for i, a in enumerate(x) if i < J]", "[a for _, a in zip(range(J), x)]"),
        _range(1, 7),
    ),
    Step(
        "keep the last J items",
        ("x[max(0, len(x) - J):]", "x[::-1][:J][::-1]", "[a for i, a in enumerate(x) if i >= len(x) - J]"),
        _range(1, 7),
    ),
)
Plan = tuple[Shape, int, tuple[tuple[Step, int], ...]]
"""A shape, its constant, and steps with theirs."""


def plans(level: int) -> Iterator[Plan]:
    """Distinct functions: at level 1 plain ones, then those with one step; at level n with n - 1 steps, without end."""
    if level == 1:
        yield from ((shape, k, ()) for k, shape in product(KS, SHAPES))
    if level <= 2:
        steps = [(step, j) for step in STEPS for j in step.constants]
        ones = [(s, k, (own,)) for s, k, own in product(SHAPES, WIDE_KS, steps) if s.domain[2] or own[0].item]
        yield from Random("suites of one step").sample(ones, len(ones))
        return
    rng, seen = Random(f"suites of {level - 1} steps"), set[Plan]()
    while True:
        shape, k = rng.choice(SHAPES), rng.choice(WIDE_KS)
        fitting = [step for step in STEPS if shape.domain[2] or step.item]
        plan = shape, k, tuple((own, rng.choice(own.constants)) for own in rng.choices(fitting, k=level - 1))
        if plan not in seen:
            seen.add(plan)
            yield plan


def with_steps(shape: Shape, steps: Sequence[tuple[Step, int]]) -> Shape:
    """The shape of a function that takes these steps first."""
    if not steps:
        return shape
    single = not shape.domain[2]
    texts = "; ".join(_of(step.text.replace("J", str(j)), single) for step, j in steps)
    forms = [
        _inserted(form, [_line(step, number, j, single) for step, j in steps])
        for number, form in enumerate(shape.forms)
    ]
    name = "_".join([shape.name, *(f"{STEPS.index(step)}.{j}" for step, j in steps)])
    text = f"{shape.text}, after these steps on x: {texts}"
    return Shape(name, text, shape.domain if single else NUMBERS, (forms[0], forms[1], forms[2]))


def functions(size: int, faults: int, inputs: int, seed: int, level: int = 1) -> Iterator[Made]:
    """The first `size` functions of a level, each with at most `faults` faulty copies, by the seed.

    A function of which no copy differs on the inputs is left out.
    """
    found = (made(with_steps(shape, steps), k, faults, inputs, seed) for shape, k, steps in plans(level))
    return islice((own for own in found if own.wrong), size)


def _of(text: str, single: bool) -> str:
    """A step's text, of a single number or of a list."""
    return text.replace("each number", "it").replace("numbers", "a number") if single else text


def _line(step: Step, number: int, j: int, single: bool) -> str:
    form = step.forms[number].replace("J", str(j) if j >= 0 else f"({j})")
    if not step.item:
        return f"    x = {form}\n"
    if single:
        return f"    a = x\n    x = {form}\n"
    mapped = f"list(map(lambda a: {form}, x))" if number == 1 else f"[{form} for a in x]"
    return f"    x = {mapped}\n"


def _inserted(form: str, lines: Sequence[str]) -> str:
    head, body = form.split("def f(x):\n")
    return f"{head}def f(x):\n{''.join(lines)}{body}"
