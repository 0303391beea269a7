"""The calls of a recipe's step on named accelerators, as a problem of placement."""

from typing import TYPE_CHECKING, Any, Literal

from posttrain.cluster.planning.accelerators import Accelerator, Amount, Sizes, candidates, transfer
from posttrain.cluster.planning.calls import Call
from posttrain.cluster.planning.search import Problem
from posttrain.errors import UserError
from posttrain.recipes.tree import Recipe

if TYPE_CHECKING:
    from posttrain.policies.sizes import ModelSize


def problem(recipe: Recipe, devices: int, on: Accelerator, prompt: int) -> Problem:
    """The calls of a step of the first stage that samples and learns: the policy generates, what is not the policy
    scores, and what is trained is trained. `prompt` is the length of a prompt; responses are as long as they may be.

    Raises `UserError` where there is no such stage, a size is not known, or a call fits nowhere.
    """
    stage: Any = next((s for s in recipe.stages.values() if hasattr(s, "rollout") and hasattr(s, "learner")), None)
    if stage is None:
        raise UserError("placements are of a stage that samples and learns, and this recipe has none")
    response = stage.rollout.sampling.max_tokens
    amount = Amount(sequences=stage.prompts * stage.rollout.n, prompt=prompt, response=response)
    sizes = {role: _sizes(recipe, role) for role in sorted(stage.roles) if not recipe.models[role].is_remote}
    trained = [role for role in sizes if recipe.models[role].trained]
    scored = [role for role in sizes if role != "policy"]

    def call(kind: Literal["generate", "score", "train"], role: str, after: tuple[str, ...] = ()) -> Call:
        found = candidates(kind, sizes[role], amount, devices, on)
        if not found:
            raise UserError(
                f"{kind} {role} fits on none of the {devices} devices: {sizes[role].parameters:,} weights, "
                f"{amount.sequences} sequences of {amount.tokens} tokens; give more or larger ones"
            )
        return Call(name=f"{kind} {role}", model=role, candidates=found, after=after, trains=kind == "train")

    calls = [call("generate", "policy")]
    calls += [call("score", role, ("generate policy",)) for role in scored]
    before = tuple(own.name for own in calls)
    calls += [call("train", role, before) for role in trained]
    return Problem(calls=calls, transfers=_transfers(calls, sizes, on), capacity=on.memory)


def _transfers(calls: list[Call], sizes: dict[str, Sizes], on: Accelerator) -> dict[Any, float]:
    """Seconds from every layout in which a model is trained to every other one that it may have."""
    layouts = {(call.model, call.trains, own.layout) for call in calls for own in call.candidates}
    return {
        (model, source, target): transfer(sizes[model], target, on)
        for model, trains, source in layouts
        for other, _, target in layouts
        if trains and other == model
    }


def _sizes(recipe: Recipe, role: str) -> Sizes:
    from posttrain.policies.sizes import trained_size

    found: ModelSize | None = trained_size(role, dict(recipe.models))
    if found is None or not found.layers:
        raise UserError(f"the size of the model in the role '{role}' is known only when it is made; give a folder")
    return Sizes(parameters=found.parameters, layers=found.layers, width=found.width, kv_width=found.kv_heads)
