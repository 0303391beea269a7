"""The calls of a recipe's step on named accelerators, as a problem of placement."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from posttrain.cluster.planning.accelerators import Accelerator, Amount, Sizes, candidates, transfer
from posttrain.cluster.planning.asked import Asked, Work, describe
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
    work = _work(recipe, on, prompt)
    sizes, amount = work.sizes, work.amount

    def call(kind: Literal["generate", "score", "train"], role: str, after: tuple[str, ...] = ()) -> Call:
        found = candidates(kind, sizes[role], amount, devices, on)
        if not found:
            raise UserError(
                f"{kind} {role} fits on none of the {devices} devices: {sizes[role].parameters:,} weights, "
                f"{amount.sequences} sequences of {amount.tokens} tokens; give more or larger ones"
            )
        return Call(name=f"{kind} {role}", model=role, candidates=found, after=after, trains=kind == "train")

    calls = [call("generate", "policy")]
    calls += [call("score", role, ("generate policy",)) for role in work.scored]
    before = tuple(own.name for own in calls)
    calls += [call("train", role, before) for role in work.trained]
    return Problem(calls=calls, transfers=_transfers(calls, sizes, on), capacity=on.memory)


def asked(recipe: Recipe, devices: int, on: Accelerator, prompt: int) -> dict[str, Any] | None:
    """What a step takes on the samplers and learners of the recipe, a device each; None for a recipe without them.

    Raises `UserError` where they are more than the devices, or the cluster is of another kind.
    """
    from posttrain.cluster.local import Local
    from posttrain.cluster.ray import Ray

    cluster = recipe.cluster
    if isinstance(cluster, Local):
        return None
    if not isinstance(cluster, Ray):
        raise UserError(f"a plan for gpus= is of cluster=ray, or without a cluster; got cluster={cluster.kind}")
    found = Asked(
        samplers=cluster.samplers,
        learners=cluster.learners,
        scorers=cluster.scorers,
        sharded=cluster.sharding != "none",
        lag=recipe.schedule.ahead if recipe.schedule.streams is None else 1,
    )
    found.check(devices)
    return describe(found, _work(recipe, on, prompt))


def _work(recipe: Recipe, on: Accelerator, prompt: int) -> Work:
    """What a step of the first stage is that samples and learns. Raises `UserError` where there is none."""
    stage: Any = next((s for s in recipe.stages.values() if hasattr(s, "rollout") and hasattr(s, "learner")), None)
    if stage is None:
        raise UserError("placements are of a stage that samples and learns, and this recipe has none")
    response = stage.rollout.sampling.max_tokens
    sizes = {role: _sizes(recipe, role) for role in sorted(stage.roles) if not recipe.models[role].is_remote}
    return Work(
        sizes=sizes,
        trained=tuple(role for role in sizes if recipe.models[role].trained),
        amount=Amount(sequences=stage.prompts * stage.rollout.n, prompt=prompt, response=response),
        on=on,
    )


def _transfers(calls: list[Call], sizes: Mapping[str, Sizes], on: Accelerator) -> dict[Any, float]:
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
