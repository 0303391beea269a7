"""The dry run: resolves the recipe, checks data and models, and draws one batch of each stage."""

from collections.abc import Iterator, Sequence

from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext, StageRunContext
from posttrain.runs.launch import prepare_machine

Section = tuple[str, list[str]]
"""A heading, and lines below it."""


def preview(recipe: Recipe, warnings: Sequence[str] = ()) -> dict[str, list[str]]:
    """Lines by heading, of `sections`."""
    return dict(sections(recipe, warnings))


def sections(recipe: Recipe, warnings: Sequence[str] = ()) -> Iterator[Section]:
    """Headings with their lines, each when it is known. Nothing is written or learned; errors are those of the run.

    ``warnings`` and ``errors`` are there if there are any: settings that do less than they seem to, and rollouts of the
    drawn batch that could not be scored.
    """
    for tracker in recipe.trackers:
        tracker.check()
    context = RunContext(recipe, prepare_machine(recipe))
    recipe, problems, models = context.recipe, context.problems, context.first_models()
    context.check(models)
    yield (
        "models",
        [
            f"{role}: {recipe.models[role].source}, {sum(p.numel() for p in policy.parameters()):,} parameters, "
            f"context {policy.context}, {'trained' if recipe.models[role].trained else 'frozen'}"
            for role, policy in models.items()
        ]
        + [f"{role}: {remote.url}, over the network" for role, remote in context.endpoints.items()],
    )
    yield (
        "data",
        [
            *recipe.tasks.describe().splitlines(),
            f"{len(problems.train)} tasks to train on, {len(problems.held_out)} held out",
            *problems.notes,
        ],
    )
    if context.fitted.chosen or context.fitted.warnings:
        yield "settings", [*context.fitted.chosen, *(f"warning: {text}" for text in context.fitted.warnings)]
    if context.device.type == "cpu":
        yield "memory", context.estimate().lines()
    errors: list[str] = []
    if problems.warnings or warnings:
        yield "warnings", [*warnings, *problems.warnings]
    for name, stage in recipe.stages.items():
        stage_context = StageRunContext(context, name, stage)
        counted = f"{stage.total_steps(problems.of(stage))} steps on {len(problems.of(stage))} tasks" + (
            f", of which {stage.selection.kind} leaves some when the stage begins" if stage.selection else ""
        )
        models = context.with_copies(stage, models)  # what a stage trains, later ones may copy
        drawn = stage.preview(models, stage_context)
        yield f"stage {name} ({stage.kind})", [counted, *drawn]
        errors += stage_context.errors
    yield "evaluation", [problems.measured]
    if errors:
        yield "errors", errors
