"""posttrain: post-training of generative models by reinforcement and imitation.

Every published method is a recipe: a short difference from another recipe.

    import posttrain

    result = posttrain.run("grpo", tasks=[{"prompt": "2+3=", "answer": "5"}, ...], reward=score, steps=20)
    result.summary["accuracy_after"]
    result.rollouts

`run`, `resume`, `evaluate`, `sample`, `compare` and `recipe` correspond to the verbs of the command line. They are
imported on first use, so ``import posttrain`` loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posttrain.recipes.tree import Recipe
    from posttrain.runs.python import compare, evaluate, recipe, resume, run, sample
    from posttrain.runs.results import Result

__version__ = "0.1.0"

__all__ = ["Recipe", "Result", "compare", "evaluate", "recipe", "resume", "run", "sample"]

_MODULES = {
    "Recipe": "posttrain.recipes.tree",
    "Result": "posttrain.runs.results",
    **dict.fromkeys(("compare", "evaluate", "recipe", "resume", "run", "sample"), "posttrain.runs.python"),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'posttrain' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
