"""Inputs of tests by rules: drawn evenly, from the ends of a domain, and those on which solutions differ."""

from collections.abc import Mapping, Sequence
from random import Random

from posttrain.datasets.faulty_functions import Domain, drawn, edges, near


def random_inputs(domain: Domain, count: int, rng: Random) -> list[str]:
    """Distinct inputs, drawn evenly, or fewer where the domain has fewer."""
    found: dict[str, None] = {}
    for _ in range(50 * count):
        if len(found) == count:
            break
        found[repr(drawn(domain, rng))] = None
    return list(found)


def boundary_inputs(domain: Domain, constants: Sequence[int], count: int, rng: Random) -> list[str]:
    """Distinct inputs from the ends of the domain and the constants, and lists of such numbers."""
    numbers, longest = near(domain, constants), domain[2]
    lists = [[rng.choice(numbers) for _ in range(rng.randint(1, longest))] for _ in range(4 * count)] if longest else []
    found = list(dict.fromkeys(map(repr, (*edges(domain, constants), *lists))))
    rng.shuffle(found)
    return found[:count]


def differing_inputs(outcomes: Mapping[str, Sequence[bool]], count: int, rng: Random) -> list[str]:
    """Inputs on which a seen wrong solution differs, first for each of them, then any; then inputs that kill none.

    `outcomes` has for each input whether each of the seen solutions differs on it.
    """
    pool = list(outcomes)
    rng.shuffle(pool)
    solutions = range(len(next(iter(outcomes.values()), ())))
    first = [next((x for x in pool if outcomes[x][i]), None) for i in solutions]
    chosen = [*(x for x in first if x is not None), *(x for x in pool if any(outcomes[x])), *pool]
    return list(dict.fromkeys(chosen))[:count]
