"""Inputs of tests from a program that a model has written, which is run in the sandbox.

A model's program has `validate_all_inputs(x)` and functions ``gen_TC1()``, ``gen_TC2()`` and so on, each of which
returns an input (SAGA, arXiv:2507.06920, and its prompts). Each generator is run by itself with a limit of time. An
input of a generator that raises or does not end, or that the validator refuses, is left out and counted.
"""

import re
from typing import Any, Final

from posttrain.grading.function_calls import called
from posttrain.sandbox import Limits, Pool

NAMES: Final = "sorted(name for name in globals() if name.startswith('gen_'))"
LIMITS: Final = Limits(cpu_s=8.0)
"""Of one generator with its validator: 8 seconds."""
MULTIDIMENSIONAL: Final = """This Python function is correct:

{correct}

List the constraints of its input that it states, those that its code implies, and those of size and cost; and what it
guards against. Then write one Python program in a fenced block. It has the constraints as comments, a function
validate_all_inputs(x) that returns whether x is an allowed input, and for each constraint two functions gen_TC1(),
gen_TC2() and so on, without parameters, that return an input: a least one and a stressing one.
"""
DIFFERENTIAL: Final = """The first of these Python functions is correct, the second has a fault:

{correct}

{wrong}

List the constraints on which they differ, and what the second does not guard against. Then write one Python program in
a fenced block. It has these as comments, a function validate_all_inputs(x) that returns whether x is an allowed input,
and for each of them two functions gen_TC1(), gen_TC2() and so on, without parameters, that return an input on which the
two may have different results: a least one and a stressing one.
"""


async def generated(code: str, pool: Pool, most: int, limits: Limits = LIMITS) -> tuple[list[str], int]:
    """Inputs of a program's generators as Python literals, and how many generators gave none."""
    _, found = await called(code, [NAMES], pool, limits)
    names = [name for name in _texts(found.get(0)) if re.fullmatch(r"gen_\w{1,40}", name)][:most]
    inputs, failed = [], 0
    for name in names:
        calls = [f"(made_ := {name}())", "bool(validate_all_inputs(made_))"]
        _, outcomes = await called(code, calls, pool, limits)
        made = outcomes.get(0)
        text = literal_of(made[1]) if isinstance(made, list) and made[:1] == ["value"] and len(made) == 2 else None
        if text is None or outcomes.get(1) != ["value", ["bool", True]]:
            failed += 1
        else:
            inputs.append(text)
    return inputs, failed


def _texts(outcome: Any) -> list[str]:
    """The texts of an outcome that is a list of texts; none for any other."""
    match outcome:
        case ["value", ["list", [*items]]]:
            return [item[1] for item in items if isinstance(item, list) and len(item) == 2 and item[0] == "str"]
    return []


def literal_of(tree: Any) -> str | None:
    """A tree from the sandbox as a Python literal of numbers, texts, lists and tuples; None for others."""
    match tree:
        case ["none"]:
            return "None"
        case ["bool", bool() as value]:
            return repr(value)
        case ["str", str() as value]:
            return repr(value)
        case ["int", str() as value]:
            return repr(int(value, 16)) if re.fullmatch(r"-?0x[0-9a-f]{1,64}", value) else None
        case ["list" | "tuple" as kind, [*items]]:
            texts = [literal_of(item) for item in items]
            if None in texts:
                return None
            inner = ", ".join(str(text) for text in texts)
            return f"[{inner}]" if kind == "list" else f"({inner}{',' * (len(texts) == 1)})"
    return None
