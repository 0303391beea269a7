"""Evaluation of models and search with them outside a run, for the command line and for Python."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posttrain.component import Component
from posttrain.errors import UserError
from posttrain.models.sources import model_of_run
from posttrain.recipes.differences import spell
from posttrain.types import Completion, Group, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.components.annotators import Annotator
    from posttrain.components.pairings import Pairing
    from posttrain.components.search import Found, Search
    from posttrain.engines import Sampler, Sampling
    from posttrain.evaluation.generation import Find, Pair
    from posttrain.models import Model
    from posttrain.policies import Policy
    from posttrain.recipes.tree import Recipe
    from posttrain.runs.context import RunContext

C = TypeVar("C", bound=Component)

SEARCH_HELP = "Search, as kind or YAML: '{kind: tree, iterations: 30}', best_of, ..."
VALUE_HELP = "Value model: a folder of one with a reward head, or a run that trained one."


def read_search(text: str) -> "Search":
    """The search that a text specifies. Raises `UserError` if it specifies none."""
    from posttrain.components.search import Search

    return _read(Search, "--search", text)


def read_pairing(text: str) -> "Pairing":
    """The rule of pairs that a text specifies. Raises `UserError` if it specifies none."""
    from posttrain.components.pairings import Pairing

    return _read(Pairing, "--pairing", text)


def read_annotators(text: str) -> "Sequence[Annotator]":
    """The annotators that a list specifies. Raises `UserError` if it specifies none."""
    from posttrain.components.annotators import Annotators

    found: Sequence[Annotator] = _made(Annotators, "--annotators", text)
    return found


def _read(contract: "type[C]", option: str, text: str) -> "C":
    made: C = _made(contract, option, text)
    return made


def _made(kind: Any, option: str, text: str) -> Any:
    """What a text specifies, of a type. Raises `UserError` for anything else."""
    from pydantic import TypeAdapter, ValidationError

    from posttrain.recipes.overrides import parse_value

    try:
        return TypeAdapter(kind).validate_python(parse_value(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{option} {text}: {place} {first['msg']}".replace(":  ", ": ")) from None


def search_models(
    search: "Search", models: "Mapping[str, Model]", *, run: Path | None, value: str | None
) -> "dict[str, Model]":
    """The models that a search uses besides the policy, frozen. Raises `UserError` for a missing one.

    `value` is the user's option; `models` are the recipe's, of which those of a `run` are in its newest checkpoint.
    """
    from posttrain.models import Model

    others = sorted(search.roles - {"policy"})
    if value is not None and len(others) != 1:
        raise UserError(f"--value names the value model, but this search uses {', '.join(others) or 'no other model'}")
    found = {}
    for role in others:
        model = models.get(role)
        if value is not None:
            model = Model(source=trained_role(value, role), head="reward")
        elif run is not None and model is not None:
            source = trained_role(str(run), role)
            model = replace(model, source=source, base=base_in_run(model, source))
        if model is None or model.source.startswith("role:"):
            raise UserError(
                f"the search needs a model in the role '{role}', and there is none; name one with --value FOLDER, the "
                "folder of a model with a reward head or of a run that trained one"
            )
        found[role] = replace(model, shape=None, lora=None, trained=False)
    return found


def base_in_run(model: "Model", source: str) -> str | None:
    """The base of a model of a run: its recipe's, where its checkpoint holds adapters alone; else None."""
    from posttrain.policies.lora import is_adapter

    return (model.base or model.source) if is_adapter(Path(source)) else None


def trained_role(name: str, role: str) -> str:
    """The source to load for a role; for a run's folder the model of that role in its newest checkpoint."""
    is_run = (Path(name) / "recipe.yaml").is_file()
    return str(model_of_run(Path(name), role)) if is_run else name


def context_for(model: str, changes: Sequence[str], search: "Search | None", value: str | None) -> "RunContext":
    """The context of a model for evaluation or data generation: the policy and the models of a search, all frozen.

    `model` is a name, a folder, or a run's folder, whose recipe is then used for the rest. Without a search, that of
    the recipe's evaluation is used.
    """
    from posttrain.policies.lora import is_adapter
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.context import RunContext
    from posttrain.runs.launch import model_source, prepare_machine

    for change in changes:
        if change.partition("=")[0] in ("model", "models.policy.source"):
            raise UserError(f"the model to measure is '{model}', so '{change}' would do nothing; leave one of them out")
    is_run = (Path(model) / "recipe.yaml").is_file()
    recipe = find_recipe(model, changes) if is_run else find_recipe("grpo", [*_following(model), *changes])
    search = search or recipe.evaluation.search
    if search is None and value is not None:
        raise UserError("--value gives a search its values, but there is no search; add --search tree")
    source, policy = model_source(model), recipe.models["policy"]
    base = base_in_run(policy, source) if is_run else policy.base if is_adapter(Path(source).expanduser()) else None
    policy = replace(policy, source=source, base=base, shape=None, lora=None, trained=False)
    run = Path(model) if is_run else None
    others = {} if search is None else search_models(search, recipe.models, run=run, value=value)
    others |= {role: _helper(recipe, role, run) for role in sorted(_helpers(recipe) - others.keys())}
    recipe = replace(recipe, models={"policy": policy, **others})
    return RunContext(recipe, prepare_machine(recipe))


def _helpers(recipe: "Recipe") -> frozenset[str]:
    """Roles besides the policy that held-out tasks are answered with."""
    from posttrain.components.rollouts import Rollout

    found = [r for s in recipe.stages.values() if isinstance(r := getattr(s, "rollout", None), Rollout)]
    last = recipe.evaluation.rollout or (found[-1] if found else None)
    return last.helpers if last is not None else frozenset()


def _helper(recipe: "Recipe", role: str, run: Path | None) -> "Model":
    """The model of a role of a run, frozen. Raises `UserError` where there is no run."""
    model = recipe.models.get(role)
    if run is None or model is None:
        raise UserError(
            f"held-out tasks are answered with the role '{role}' of a run; give the folder of the run, or another "
            "evaluation.rollout"
        )
    source = trained_role(str(run), role)
    return replace(model, source=source, base=base_in_run(model, source), shape=None, lora=None, trained=False)


def _following(model: str) -> list[str]:
    """Changes by which a recipe takes a model, so that lengths and chat template follow it; nothing is learned."""
    return [f"model={spell(model)}", "lr=1e-6", "learner.schedule.warmup=0", "evaluation.early=0"]


def answers_of(context: "RunContext") -> "tuple[dict[str, Any], list[Trajectory]]":
    """The summary and all answers of an evaluation on the held-out tasks."""
    return answers_with(context, context.first_models())


def answers_with(context: "RunContext", models: "Mapping[str, Policy]") -> "tuple[dict[str, Any], list[Trajectory]]":
    """The same of these models, whose weights may have changed since the last time."""
    from posttrain.evaluation.candidates import evaluate_candidates
    from posttrain.evaluation.greedy import evaluate
    from posttrain.evaluation.search import evaluate_search
    from posttrain.runs.losses import held_out_losses
    from posttrain.stages.prompts import check_prompts

    problems, settings = context.problems, context.recipe.evaluation
    if not problems.held_out:
        raise UserError("evaluation.by is none, so nothing is held out; name a test set: evaluation.tasks=FILE")
    losses = held_out_losses(models["policy"], problems.losses, problems.held_out, {})
    if not problems.answered:
        return dict(losses.summary), list(losses.trajectories)
    with problems.naming_places():
        check_prompts(models["policy"], problems.held_out, "the held-out tasks", problems.rollout)
    servers = {role: context.server(policy) for role, policy in models.items()}
    result = evaluate(
        servers["policy"],
        problems.held_out,
        problems.verifier,
        settings,
        problems.sampling,
        problems.rollout,
        {role: servers[role] for role in (problems.rollout.helpers if problems.rollout is not None else ())},
    )
    summary, answers = dict(result.summary), list(result.trajectories)
    if settings.search is not None:
        guided = evaluate_search(servers, problems.held_out, problems.verifier, settings.search, settings.correct_at)
        summary["searched"], answers = guided.summary, [*answers, *guided.trajectories]
    if settings.candidates is not None:
        given = evaluate_candidates(
            servers["policy"],
            problems.held_out,
            problems.verifier,
            per=settings.candidates,
            correct_at=settings.correct_at,
            written=[t for t in result.trajectories if t.sample == 0],
        )
        summary["candidates"] = given.summary
    return {**summary, "verifier": problems.verifier.kind, **losses.summary}, answers


def with_sampling(search: "Search", sampling: "Sampling") -> "Search":
    """The search with the sampling of the options. Raises `UserError` for a search that uses rewards."""
    if search.uses_rewards:
        raise UserError("a search that uses rewards cannot answer a prompt; leave value_role out, and give --value")
    changed: Any = search
    return replace(changed, sampling=sampling) if hasattr(search, "sampling") else search


def best_completions(found: "Found", count: int) -> "tuple[list[Completion], list[float | None]]":
    """The best different results of a search as completions of its prompt, with their values."""
    ranked = sorted(range(len(found.trajectories)), key=lambda i: -found.values[i])
    order = list({found.trajectories[i].completion: i for i in reversed(ranked)}.values())[::-1][:count]
    completions = [
        Completion(
            token_ids=t.completion_ids,
            logp=t.behavior_logp,
            stop_reason=t.stop_reason,
            version=0,
            text=t.completion,
        )
        for t in (found.trajectories[i] for i in order)
    ]
    return completions, [found.values[i] for i in order]


def search_with(search: "Search", run: "RunContext", policies: "Mapping[str, Policy]") -> "Find":
    """A search of a task with loaded models; its rollouts are scored by the verifier."""
    from posttrain.components.rewards import RewardContext, scored

    reward = run.problems.verifier

    async def find(task: Task) -> "tuple[Found, tuple[Trajectory, ...]]":
        samplers = _samplers(run, policies, task)
        context = RewardContext(samplers=samplers)
        found = await search.search(task, samplers, lambda group: scored(group, reward, context))
        if search.uses_rewards:
            return found, found.trajectories
        return found, (await scored(Group(key=task.key, trajectories=found.trajectories), reward, context)).trajectories

    return find


def pairing_with(rule: "Pairing", run: "RunContext", policies: "Mapping[str, Policy]", *, writer: str) -> "Pair":
    """Pairs of a task's rollouts by a rule, which may sample with the policy; `writer` is its name in their origin."""
    from posttrain.components.pairings import Paired, Rollouts
    from posttrain.components.rewards import RewardContext, scored

    reward = run.problems.verifier

    async def pair(task: Task, rollouts: Sequence[Trajectory]) -> Paired:
        samplers = _samplers(run, policies, task)
        context = RewardContext(samplers=samplers)
        known = Rollouts(
            task=task,
            trajectories=tuple(rollouts),
            sampler=samplers["policy"].bind("pairs"),
            scorer=lambda group: scored(group, reward, context),
            writers=(writer,) * len(rollouts),
        )
        return await rule.pair(known)

    return pair


def _samplers(run: "RunContext", policies: "Mapping[str, Policy]", task: Task) -> "dict[str, Sampler]":
    """The models by role, bound to a task."""
    return {role: run.server(policy).bind("generate", task.key) for role, policy in policies.items()}
