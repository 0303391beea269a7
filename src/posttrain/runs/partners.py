"""Cross-play: the partners that other runs trained, in the place of a run's own.

A partner is the run's model of the role that the rollout names, or its policy where it has none.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.models.sources import has_role
from posttrain.runs.budgets import Partner
from posttrain.runs.measuring import base_in_run, trained_role

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.runs.context import RunContext

OWN: Final = "own"
"""Name of the partner that the run has itself."""
ROLE: Final = "partner"
"""Role of a partner where both agents have one model."""
PROBE: Final = "Which one? The 23rd: <A>x = 4</A>, Größe {ok}\n"
"""A text that different tokenizers split differently."""
MOST: Final = 100
"""Most partners."""


def read_partners(text: str) -> list[str]:
    """The runs or models that a text names. Raises `UserError`."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names) or len(names) > MOST or OWN in names:
        raise UserError(f"--partners {text}: write up to {MOST} different runs or models with commas, as RUN2,RUN3")
    return names


def met(context: "RunContext", names: list[str]) -> dict[str, Partner]:
    """The run's own partner, and those of the names. Raises `UserError` where no other agent acts."""
    rollout: Any = context.problems.rollout
    roles = sorted(rollout.helpers) if rollout is not None else []
    changed = rollout
    if not roles and hasattr(rollout, "partner"):
        roles, changed = [ROLE], replace(rollout, partner=ROLE)
    if not roles:
        kind = "none" if rollout is None else rollout.kind
        raise UserError(
            f"--partners: held-out tasks are answered by the rollout '{kind}', in which the policy meets no other "
            "model; name one with a partner, as in evaluation.rollout.kind=dialogue"
        )
    found = {OWN: Partner(rollout=rollout)}
    own = context.load("policy", context.recipe.models["policy"], {}).tokenizer.encode(PROBE)
    for name in names:
        models = {role: _partner(context, name, role) for role in roles}
        if any(list(model.tokenizer.encode(PROBE)) != list(own) for model in models.values()):
            raise UserError(f"--partners {name}: its tokenizer is another one, so that it cannot read this model's ids")
        found[name] = Partner(rollout=changed, models=models)
    return found


def _partner(context: "RunContext", name: str, role: str) -> "Policy":
    """A frozen model for a role, of a run or by its name."""
    is_run = (Path(name) / "recipe.yaml").is_file()
    source = trained_role(name, role if is_run and has_role(Path(name), role) else "policy")
    own = context.recipe.models.get(role, context.recipe.models["policy"])
    base = base_in_run(own, source) if is_run else None
    model: Model = replace(own, source=source, base=base, shape=None, lora=None, trained=False)
    return context.load(role, model, {})
