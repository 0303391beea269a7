"""Accuracy on held-out tasks under several budgets: ``turns=1,2,3`` of a rollout, or ``tokens=16,64`` of a turn.

Each budget is an evaluation of its own, with the same tasks, draws and models. It is not the prefix of one with a
larger budget: an environment that states what is left shows another text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.runs.context import RunContext

UNITS: Final = ("turns", "tokens")
MOST: Final = 100
"""Most budgets."""
LARGEST: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What is limited, and the limits."""

    unit: str
    amounts: Sequence[int]


def read_budget(text: str) -> Budget:
    """The budgets that a text specifies. Raises `UserError`."""
    unit, _, listed = text.partition("=")
    words = [word.strip() for word in listed.split(",")]
    if unit.strip() not in UNITS or not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"--budget {text}: write turns=1,2,3 or tokens=16,64, with whole numbers")
    amounts = [int(word) for word in words if len(word) < 9]
    if len(amounts) < len(words) or len(amounts) > MOST or not all(0 < own <= LARGEST for own in amounts):
        raise UserError(f"--budget {text}: up to {MOST} numbers from 1 to {LARGEST:,} are allowed")
    if len(set(amounts)) < len(amounts):
        raise UserError(f"--budget {text}: a number is there twice")
    return Budget(unit=unit.strip(), amounts=amounts)


def answers_by_budget(context: "RunContext", budget: Budget) -> list[dict[str, Any]]:
    """The summary of each budget, in their order, with the budget under the name of its unit. Raises `UserError`."""
    from posttrain.evaluation.greedy import evaluate
    from posttrain.stages.prompts import check_prompts

    problems, settings = context.problems, context.recipe.evaluation
    rollout: Any = problems.rollout
    if not problems.held_out or not problems.answered:
        raise UserError("--budget answers held-out tasks, and this recipe's evaluation answers none")
    if budget.unit == "turns" and not hasattr(rollout, "max_turns"):
        kind = "none" if rollout is None else rollout.kind
        raise UserError(
            f"--budget turns: held-out tasks are answered by the rollout '{kind}', which has no setting max_turns; "
            "name one that has, as in evaluation.rollout.kind=turns, or give tokens=..."
        )
    models = context.first_models()
    check_prompts(models["policy"], problems.held_out, "the held-out tasks")
    servers = {role: context.server(policy) for role, policy in models.items()}
    found = []
    for amount in budget.amounts:
        sampling, own = problems.sampling, rollout
        if budget.unit == "turns":
            own = replace(rollout, max_turns=amount)
        else:
            sampling = replace(sampling, max_tokens=amount)
        helpers = {role: servers[role] for role in (own.helpers if own is not None else ())}
        result = evaluate(servers["policy"], problems.held_out, problems.verifier, settings, sampling, own, helpers)
        found.append({budget.unit: amount, **result.summary})
    return found
