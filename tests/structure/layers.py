"""The table of layers, from the lowest to the highest: what each part of the package may import, besides itself.

A part is an entry at the top level of `src/posttrain`. In `components/`, each family has two: ``components.rewards`` is
its contract (the `__init__`), ``components.rewards.*`` its members. Everything that a row does not name is forbidden.

``base`` stands for what everything may import, ``contracts`` and ``members`` for those of all families; as the name of
a row, for those that have no row of their own.
"""

from collections.abc import Mapping, Sequence

BASE = ("types", "signals", "component", "components", "errors")

ROWS: dict[str, str] = {
    # What everything stands on.
    "errors components signals statistics": "",
    "types": "errors signals",
    "component": "errors",
    "kernels": "errors statistics",
    "sandbox": "component errors",
    # Contracts, and below some of them the models that they are about.
    "contracts": "base",
    "components.optimizers.* components.schedules.*": "base components.optimizers components.schedules",
    "models": "base components.shapes",
    "components.balances components.experts": "base components.tasks",
    "datasets": "base components.annotators components.tasks",
    "policies": "base kernels models datasets components.edits components.merges components.noises components.shapes",
    "engines": "base kernels datasets policies statistics",
    "serving": "base models engines",
    "components.curricula components.rewards components.rollouts components.selections": "base engines",
    "components.pairings components.search": "base engines components.rollouts",
    "components.diagnostics": "base engines policies",
    # The defaults of a learner's settings are members.
    "components.controllers.*": "base components.controllers",
    "training": "base kernels policies statistics components.balances components.controllers components.optimizers "
    "components.reducers components.schedules components.controllers.* components.optimizers.* components.schedules.*",
    "components.hooks": "base policies training",
    "grading": "base sandbox components.rewards",
    "cluster": "base components.reducers engines grading kernels policies sandbox training",
    # Members know contracts, and what members share.
    "components.shapes.*": "base contracts datasets engines grading policies statistics",
    "components.diagnostics.*": "base contracts datasets engines grading policies sandbox statistics",
    "members": "base contracts datasets engines grading sandbox statistics",
    # What brings components together has contracts only; recipes, settings and methods name members.
    "evaluation": "base contracts datasets engines statistics",
    "stages": "base contracts datasets engines models policies statistics training",
    "recipes": "base cluster contracts members engines evaluation models stages training",
    "settings": "base cluster contracts members datasets engines evaluation grading models recipes stages training",
    "methods": "base cluster contracts members datasets engines evaluation models recipes settings stages training",
    # What runs recipes.
    "audit": "base components.rewards components.tasks datasets engines grading statistics",
    "runs": "base cluster contracts datasets engines evaluation grading kernels models policies recipes sandbox "
    "serving stages statistics training",
    "viewer": "errors runs signals statistics",
    "cli": "base cluster contracts audit engines evaluation kernels models policies recipes runs sandbox serving "
    "stages viewer",
    "posttrain": "base evaluation recipes runs",
    "__main__": "cli",
}


def table(families: Sequence[str], rows: Mapping[str, str] = ROWS) -> dict[str, frozenset[str]]:
    """The rows with every name spelled out: by part, in their order, the parts that it may import."""
    groups = {
        "base": BASE,
        "contracts": tuple(f"components.{family}" for family in families),
        "members": tuple(f"components.{family}.*" for family in families),
    }
    own = {name for names in rows for name in names.split()}
    layers = {}
    for names, imported in rows.items():
        allowed = frozenset(part for name in imported.split() for part in groups.get(name, (name,)))
        for name in names.split():
            layers |= {part: allowed for part in groups.get(name, (name,)) if part == name or part not in own}
    return layers
