"""Models that are measured or searched with, outside a run: for the verbs of the command line and for Python."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.errors import UserError
from posttrain.types import Completion, Trajectory

if TYPE_CHECKING:
    from posttrain.components.search import Found, Search
    from posttrain.engines import Sampling
    from posttrain.models import Model
    from posttrain.runs.bench import Bench

SEARCH_HELP = "Search, as kind or YAML: '{kind: tree, iterations: 30}', best_of, ..."
VALUE_HELP = "Value model: a folder of one with a reward head, or a run that trained one."


def read_search(text: str) -> "Search":
    """The search that a text means. Raises `UserError` for one that is none."""
    from pydantic import TypeAdapter, ValidationError

    from posttrain.components.search import Search
    from posttrain.recipes.overrides import parse_value

    try:
        search: Search = TypeAdapter(Search).validate_python(parse_value(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            f"--search {text}: {'.'.join(map(str, first['loc']))} {first['msg']}".replace(":  ", ": ")
        ) from None
    return search


def search_models(
    search: "Search", models: "Mapping[str, Model]", *, run: Path | None, value: str | None
) -> "dict[str, Model]":
    """The models beside the policy that a search asks, frozen. Raises `UserError` for one that there is not.

    `value` is what the user said; `models` are the recipe's, of which those of a `run` are in its newest checkpoint.
    """
    from posttrain.models import Model

    others = sorted(search.roles - {"policy"})
    if value is not None and len(others) != 1:
        raise UserError(f"--value names the value model, but this search asks {', '.join(others) or 'no other model'}")
    found = {}
    for role in others:
        model = models.get(role)
        if value is not None:
            model = Model(source=trained_role(value, role), head="reward")
        elif run is not None and model is not None:
            model = replace(model, source=trained_role(str(run), role))
        if model is None or model.source.startswith("role:"):
            raise UserError(
                f"the search asks the role '{role}', which no model plays here; name one with --value FOLDER, the "
                "folder of a model with a reward head or of a run that trained one"
            )
        found[role] = replace(model, shape=None, lora=None, trained=False)
    return found


def trained_role(name: str, role: str) -> str:
    """What to load for a role: a run's folder stands for its newest checkpoint's model in that role."""
    folder = Path(name)
    if not (folder / "recipe.yaml").is_file():
        return name
    saved = sorted((folder / "checkpoints").glob(f"step_*/models/{role}"))
    if not saved:
        raise UserError(f"{folder} has no model in the role '{role}' in any checkpoint")
    return str(saved[-1])


def bench_for(model: str, changes: Sequence[str], search: "Search | None", value: str | None) -> "Bench":
    """A model made ready to be measured, or to make data: the policy, and what a search asks, all frozen.

    `model` is a name, a folder, or a run's folder, whose recipe says the rest then. Without a search the one of the
    recipe's evaluation counts.
    """
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.bench import Bench
    from posttrain.runs.launch import model_source, prepare_machine

    for change in changes:
        if change.partition("=")[0] in ("model", "models.policy.source"):
            raise UserError(f"the model to measure is '{model}', so '{change}' would do nothing; leave one of them out")
    is_run = (Path(model) / "recipe.yaml").is_file()
    recipe = find_recipe(model if is_run else "grpo", changes)
    search = search or recipe.evaluation.search
    if search is None and value is not None:
        raise UserError("--value gives a search its values, but there is no search; add --search tree")
    policy = replace(recipe.models["policy"], source=model_source(model), shape=None, lora=None, trained=False)
    run = Path(model) if is_run else None
    others = {} if search is None else search_models(search, recipe.models, run=run, value=value)
    recipe = replace(recipe, models={"policy": policy, **others})
    return Bench(recipe, prepare_machine(recipe))


def answers_of(bench: "Bench") -> "tuple[dict[str, Any], list[Trajectory]]":
    """The held-out tasks answered and scored: the numbers, and every answer."""
    from posttrain.evaluation.greedy import evaluate
    from posttrain.evaluation.search import evaluate_search
    from posttrain.stages.prompts import check_prompts

    models, problems, settings = bench.first_models(), bench.problems, bench.recipe.evaluation
    check_prompts(models["policy"], problems.held_out, "the held-out tasks")
    servers = {role: bench.server(policy) for role, policy in models.items()}
    result = evaluate(
        servers["policy"], problems.held_out, problems.verifier, settings, problems.sampling, problems.rollout
    )
    summary, answers = dict(result.summary), list(result.trajectories)
    if settings.search is not None:
        guided = evaluate_search(servers, problems.held_out, problems.verifier, settings.search, settings.correct_at)
        summary["searched"], answers = guided.summary, [*answers, *guided.trajectories]
    return {**summary, "verifier": problems.verifier.kind}, answers


def with_sampling(search: "Search", sampling: "Sampling") -> "Search":
    """The search, drawing as the options say. Raises `UserError` for a search that must not answer."""
    if search.judges:
        raise UserError("a search that looks at rewards cannot answer a prompt; leave value_role out, and give --value")
    changed: Any = search
    return replace(changed, sampling=sampling) if hasattr(search, "sampling") else search


def best_completions(found: "Found", count: int) -> "tuple[list[Completion], list[float | None]]":
    """The best of what a search found, all different, as completions of its prompt, with their values."""
    ranked = sorted(range(len(found.attempts)), key=lambda i: -found.values[i])
    order = list({found.attempts[i].completion: i for i in reversed(ranked)}.values())[::-1][:count]
    completions = [
        Completion(
            token_ids=t.completion_ids,
            logp=t.behavior_logp,
            stop_reason=t.stop_reason,
            version=0,
            text=t.completion,
        )
        for t in (found.attempts[i] for i in order)
    ]
    return completions, [found.values[i] for i in order]
