"""The dry run: resolve, check data and model, draw one batch of the first stage."""

from posttrain.recipes.tree import Recipe
from posttrain.runs.bench import Bench, StageBench
from posttrain.runs.launch import prepare_machine


def preview(recipe: Recipe) -> dict[str, list[str]]:
    """Lines by heading. Nothing is written and nothing is learned; errors are those that the run would meet."""
    bench = Bench(recipe, prepare_machine(recipe))
    problems, models = bench.problems, bench.first_models()
    bench.check(models)
    found = {
        "models": [
            f"{role}: {recipe.models[role].source}, {sum(p.numel() for p in policy.parameters()):,} parameters, "
            f"context {policy.context}, {'trained' if recipe.models[role].trained else 'frozen'}"
            for role, policy in models.items()
        ]
        + [f"{role}: {remote.url}, asked over the network" for role, remote in bench.endpoints.items()],
        "data": [
            *recipe.tasks.describe().splitlines(),
            f"{len(problems.train)} tasks to train on, {len(problems.held_out)} held out",
            *problems.notes,
        ],
    }
    for name, stage in recipe.stages.items():
        found[f"stage {name} ({stage.kind})"] = [
            f"{stage.total_steps(problems.of(stage))} steps on {len(problems.of(stage))} tasks"
            + (f", of which {stage.selection.kind} leaves some when the stage begins" if stage.selection else ""),
            *stage.preview(bench.with_copies(stage, models), StageBench(bench, name, stage)),
        ]
    found["evaluation"] = [
        f"{len(problems.held_out)} tasks, judged by {problems.verifier.kind}, greedy"
        + (f" and {recipe.evaluation.samples} samples" if recipe.evaluation.samples else "")
    ]
    return found
