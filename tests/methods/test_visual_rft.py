import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from posttrain.cli.sample import command
from posttrain.components.tasks.shapes import Shapes
from posttrain.datasets.images import encoded, pixels_of
from posttrain.evaluation.greedy import evaluate
from posttrain.methods.multimodal.visual_rft import ROWS, visual_rft
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.recipes.overrides import override, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.report import write_report
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.resuming import cut_off_and_resumed

TINY = (
    "tasks.size=48",
    "tasks.shapes=[1, 1]",
    "models.policy.shape.layers=1",
    "models.policy.shape.width=32",
    "models.policy.shape.mlp_width=48",
    "sft.batch=8",
    "sft.epochs=0.5",
    "rl.steps=3",
    "rl.prompts=3",
    "rl.rollout.n=4",
    "rl.rollout.sampling.max_tokens=12",
    "evaluation.holdout=6",
    "threads=1",
)


def tiny(*changes: str) -> Recipe:
    return override(visual_rft(), [*TINY, *changes])


def run(recipe: Recipe, root: Path) -> tuple[Models, RunStore]:
    context = RunContext(recipe, torch.device("cpu"))
    context.check(context.first_models())
    with RunStore.create(root, recipe.name, to_tree(recipe)) as store:
        models = Run(context, store, LiveView(lines=True)).execute(context.first_models())
    return models, RunStore.open(store.folder, reading=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Models, RunStore]:
    return run(tiny("checkpoints.every_steps=1"), tmp_path_factory.mktemp("runs"))


def policy_of(models: Models) -> LanguageModelPolicy:
    policy = models["policy"]
    assert isinstance(policy, LanguageModelPolicy)
    return policy


@pytest.mark.slow
def test_every_coordinate_and_confidence_is_one_token(finished: tuple[Models, RunStore]) -> None:
    models, _ = finished
    policy = policy_of(models)
    for task in Shapes(size=20, side=16).load():
        length = len(policy.tokenizer.encode_completion(task.prompt, task.demonstrations[0]))
        assert length < 16 + 14 * max(1, len(task.fields["boxes"]) + 1)


def test_parts_of_the_reward_are_recorded_apart(finished: tuple[Models, RunStore]) -> None:
    _, store = finished
    rl = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert len(rl) == 3 and ROWS == (30,)
    for entry in rl:
        parts = [entry[f"reward/{name}"] for name in ("iou", "confidence", "format")]
        assert sum(parts) == pytest.approx(entry["reward"]) and entry["kl/reference"] >= 0.0
    assert rl[0]["kl/reference"] == pytest.approx(0.0, abs=1e-7), "it begins as the reference"


def test_rollouts_refer_to_the_images_of_their_tasks(finished: tuple[Models, RunStore]) -> None:
    _, store = finished
    tasks = {task.key: task for task in visual_rft_tasks()}
    rows = [*store.rollouts(store.rollout_steps()[-1]), *store.evaluation_rows(0, "before", (), "true")]
    assert rows
    for row in rows:
        [name] = json.loads(row["images"])
        assert (store.folder / name).read_bytes() == encoded(tasks[row["task_key"]].images[0])


def visual_rft_tasks() -> Any:
    return tiny().tasks.load()


def test_the_report_shows_them(finished: tuple[Models, RunStore]) -> None:
    _, store = finished
    with RunStore.open(store.folder) as own:
        folder = own.folder
    page = write_report(folder).read_text()
    assert page.count('<img src="data:image/png;base64,') >= 3 and "img-src data:" in page


@pytest.mark.slow
def test_it_goes_on_bit_for_bit(finished: tuple[Models, RunStore], tmp_path: Path) -> None:
    models, store = finished
    again, resumed = cut_off_and_resumed(tiny("checkpoints.every_steps=1"), tmp_path, at=5)
    for (name, a), (_, b) in zip(
        policy_of(models).named_parameters(), policy_of(again).named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    for name in ("metrics.jsonl", "events.jsonl", "evals.jsonl"):
        assert (store.folder / name).read_bytes() == (resumed.folder / name).read_bytes()
    for kind in ("rollouts", "evals", "images"):
        mine, other = (sorted((s.folder / kind).iterdir()) for s in (store, resumed))
        assert [p.name for p in mine] == [p.name for p in other]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(mine, other, strict=True))


def test_the_answers_are_of_the_picture(finished: tuple[Models, RunStore]) -> None:
    """Held-out answers are scored from the picture: with pictures exchanged, their probabilities are others."""
    models, _ = finished
    recipe = tiny()
    context = RunContext(recipe, torch.device("cpu"))
    problems, server = context.problems, context.server(models["policy"])
    tasks = problems.held_out
    others = [replace(t, images=o.images) for t, o in zip(tasks, [*tasks[1:], tasks[0]], strict=True)]
    seen, exchanged = (
        evaluate(server, some, problems.verifier, recipe.evaluation, problems.sampling) for some in (tasks, others)
    )
    assert seen.summary["tasks"] == len(tasks) and seen.summary["errors"] == 0
    first = [[t.behavior_logp[0] for t in result.trajectories] for result in (seen, exchanged)]
    assert not np.allclose(*first, atol=1e-6)


def test_rows_of_a_file_with_pictures_train_it(tmp_path: Path) -> None:
    rows = []
    for number, task in enumerate(Shapes(size=24, side=16, shapes=(1, 1)).load()):
        from PIL import Image as pillow

        pillow.fromarray(pixels_of(task.images[0])).save(tmp_path / f"{number}.png", optimize=True)
        row = {"prompt": task.prompt, "completion": task.demonstrations[0], **task.fields}
        rows.append(json.dumps({**row, "image": f"{number}.png"}))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    recipe = override(visual_rft(), [*TINY[2:], f"tasks={tmp_path / 'rows.jsonl'}", "rl.steps=1"])
    _, store = run(recipe, tmp_path / "runs")
    [row, *_] = store.rollouts(store.rollout_steps()[-1])
    [name, *_] = json.loads(row["images"])
    assert Path(name).parent == Path("images") and (store.folder / name).is_file(), "small pictures are in the record"
    [entry] = [e for e in store.metrics() if e["stage"] == "rl"]
    assert math.isfinite(entry["loss"]) and entry["grader_errors"] == 0.0


def test_the_command_line_shows_it_a_picture(finished: tuple[Models, RunStore], tmp_path: Path) -> None:
    models, _ = finished
    policy_of(models).save(tmp_path / "model")
    [image] = visual_rft_tasks()[0].images
    (tmp_path / "picture.png").write_bytes(encoded(image))
    arguments = [str(tmp_path / "model"), "What is it?", "--max-tokens", "3", "--json"]
    first_logps = []
    for more in (["--image", str(tmp_path / "picture.png")], []):
        done = CliRunner().invoke(command, [*arguments, *more])
        assert done.exit_code == 0, done.output
        first_logps.append(json.loads(done.output)["completions"][0]["logp"])
    assert first_logps[0] != first_logps[1]
