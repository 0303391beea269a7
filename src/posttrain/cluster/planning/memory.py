"""Memory of a plan: models that share a device are there together, and one of them works at a time.

Source: ReaLHF (arXiv:2406.14088), released search engine: over every clique of meshes that overlap in pairs, the sum
of what is static and the largest of what is active; the plan's is the maximum.

Differs: calls of one model on the same devices with the same layout share its static memory.
"""

from collections.abc import Sequence

from posttrain.cluster.planning.calls import Call, Candidate, Plan


def plan_bytes(calls: Sequence[Call], plan: Plan) -> int:
    """Bytes of the fullest device, by cliques."""
    chosen = [(call.model, call.candidates[plan[call.name]]) for call in calls]
    return max(_bytes(clique) for clique in _cliques(chosen))


def _bytes(clique: Sequence[tuple[str, Candidate]]) -> int:
    static = {(model, own.devices, own.layout): own.static for model, own in clique}
    return sum(static.values()) + max(own.active for _, own in clique)


def _cliques(chosen: Sequence[tuple[str, Candidate]]) -> list[list[tuple[str, Candidate]]]:
    """All maximal sets whose devices overlap in pairs (Bron and Kerbosch 1973)."""
    near = [
        {j for j, (_, other) in enumerate(chosen) if j != i and own.devices & other.devices}
        for i, (_, own) in enumerate(chosen)
    ]
    found: list[list[tuple[str, Candidate]]] = []

    def grow(members: set[int], possible: set[int], done: set[int]) -> None:
        if not possible and not done:
            found.append([chosen[i] for i in sorted(members)])
        for i in sorted(possible):
            grow(members | {i}, possible & near[i], done & near[i])
            possible = possible - {i}
            done = done | {i}

    grow(set(), set(range(len(chosen))), set())
    return found
