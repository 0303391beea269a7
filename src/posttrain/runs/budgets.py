"""Accuracy on held-out tasks under several budgets: ``turns=1,2,3`` of a rollout, or ``tokens=16,64`` of a turn.

Each budget is an evaluation of its own, with the same tasks, draws and models. It is not the prefix of one with a
larger budget: an environment that states what is left shows another text. The same with several partners.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.components.rollouts import Rollout
    from posttrain.engines import Sampling
    from posttrain.policies import Policy
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


@dataclass(frozen=True, kw_only=True)
class Partner:
    """With whom held-out tasks are answered: the rollout, and models of its roles that differ from the recipe's."""

    rollout: "Rollout | None"
    models: "Mapping[str, Policy]" = field(default_factory=dict)


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


def answers_by_budget(
    context: "RunContext", budget: Budget | None, partners: "Mapping[str, Partner] | None" = None
) -> list[dict[str, Any]]:
    """The summary with each partner under each budget, in their order. Raises `UserError`.

    A summary has the name of its partner under ``partner``, and its budget under the name of the unit.
    """
    from posttrain.evaluation.greedy import evaluate
    from posttrain.stages.prompts import check_prompts

    problems, settings = context.problems, context.recipe.evaluation
    if not problems.held_out or not problems.answered:
        raise UserError("held-out tasks are answered, and this recipe's evaluation answers none")
    models = context.first_models()
    check_prompts(models["policy"], problems.held_out, "the held-out tasks", problems.rollout)
    policy = context.server(models["policy"])
    found = []
    for name, partner in (partners or {"": Partner(rollout=problems.rollout)}).items():
        rollout = partner.rollout
        helpers = {
            role: context.server(partner.models.get(role) or models.get(role, models["policy"]))
            for role in (rollout.helpers if rollout is not None else ())
        }
        for amount, own, sampling in _limited(rollout, problems.sampling, budget):
            result = evaluate(policy, problems.held_out, problems.verifier, settings, sampling, own, helpers)
            place = {"partner": name} if partners is not None else {}
            found.append({**place, **({budget.unit: amount} if budget is not None else {}), **result.summary})
    return found


def _limited(
    rollout: "Rollout | None", sampling: "Sampling", budget: Budget | None
) -> "list[tuple[int, Rollout | None, Sampling]]":
    """Each amount with its rollout and sampling; without a budget what there is. Raises `UserError`."""
    if budget is None:
        return [(0, rollout, sampling)]
    if budget.unit == "tokens":
        return [(amount, rollout, replace(sampling, max_tokens=amount)) for amount in budget.amounts]
    changed: Any = rollout
    if not hasattr(rollout, "max_turns"):
        kind = "none" if rollout is None else rollout.kind
        raise UserError(
            f"--budget turns: held-out tasks are answered by the rollout '{kind}', which has no setting max_turns; "
            "name one that has, as in evaluation.rollout.kind=turns, or give tokens=..."
        )
    try:
        return [(amount, replace(changed, max_turns=amount), sampling) for amount in budget.amounts]
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise UserError(f"--budget turns: max_turns of the rollout '{changed.kind}': {message}") from None
