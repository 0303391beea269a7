"""`posttrain merge`, as it is called."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from posttrain.cli import main
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe, to_yaml
from posttrain.runs import merging


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        new_folder(Path(f"m{seed}"), layers=1, width=32, heads=2, kv_heads=1, context=64, seed=seed)


def test_a_folder_that_is_the_average(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "m1", "m2", "weights=[0.25, 0.75]", "--out", "soup", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert (answer["model"], answer["method"], answer["dtype"]) == ("soup", "soup", "float32")
    assert answer["distances"]["m2"] < answer["distances"]["m1"]
    a, b, made = (load_file(f"{name}/model.safetensors") for name in ("m1", "m2", "soup"))
    assert made.keys() == a.keys()
    assert all(torch.equal(made[n], (0.25 * a[n].double() + 0.75 * b[n].double()).float()) for n in made)
    assert Path("soup/config.json").read_bytes() == Path("m1/config.json").read_bytes()
    assert main(["sample", "soup", "1+1=", "--max-tokens", "2"]) == 0


def test_the_type_is_the_first_models(capfd: pytest.CaptureFixture[str]) -> None:
    path = Path("m1/model.safetensors")
    save_file({n: t.bfloat16() for n, t in load_file(path).items()}, path, metadata={"format": "pt"})
    assert main(["merge", "m1", "m2", "--out", "soup"]) == 0
    assert "wrote soup (bfloat16)" in capfd.readouterr().out
    assert {t.dtype for t in load_file("soup/model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("m1",), "got 1 model to merge; name at least two"),
        (("m1", "m1"), "a model is named twice among m1, m1"),
        (("m1", "m3"), "the model folder 'm3' does not exist"),
        (("m1", "m2", "weigths=[1, 0]"), "Soup has no field 'weigths'; did you mean 'weights'?"),
        (("m1", "m2", "weights=[1, 1]"), "they must add up to 1"),
        (("m1", "m2", "--method", "sop"), "no merge named 'sop'; did you mean 'soup'?"),
        (("m1", "m2", "--out", "m1"), "'m1' is not empty"),
        (("m1", "m2", "--sweep", "0:1:0.5"), "name the folder to write, --out FOLDER, or the coefficients"),
        (("m1", "m2", "--method", "aim"), "informed by calibration texts, and there are none"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = () if "--out" in words else ("--out", "soup")
    assert main(["merge", *words, *out]) == 2
    assert message in capfd.readouterr().err
    assert not Path("soup").exists()


def test_a_sweep_from_one_model_to_the_other(capfd: pytest.CaptureFixture[str]) -> None:
    """At 0 and 1 the answers are those of the two models."""
    limits = ("evaluation.holdout=4", "rollout.sampling.max_tokens=4", "tasks.size=20")
    assert main(["merge", "m1", "m2", "--method", "task_arithmetic", "--sweep", "0:1:0.4", *limits, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["points"]
    assert [point["coefficient"] for point in found] == [0.0, 0.4, 0.8, 1.0]
    assert all(point["summary"]["tasks"] == 4 and 0.0 <= point["reflective"] <= 1.0 for point in found)
    assert main(["merge", "m1", "m2", "--sweep", "1:0:0.1"]) == 2
    assert "which has no points" in capfd.readouterr().err


@pytest.mark.slow
def test_a_sweep_that_was_interrupted_goes_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command measures one coefficient, and gives what one without an interruption gives."""
    limits = ("evaluation.holdout=4", "rollout.sampling.max_tokens=4", "tasks.size=20", "--method", "task_arithmetic")
    whole = ("merge", "m1", "m2", *limits, "--sweep", "0:1:0.5", "--json")
    assert main([*whole]) == 0
    shown = capfd.readouterr()
    assert shown.err.count("\n") >= 4, "a line for each coefficient, when it is known"
    measured, answers_with = [], merging.answers_with
    monkeypatch.setattr(merging, "answers_with", lambda *given: measured.append(1) or answers_with(*given))
    kept = ("--keep", "points.json")
    assert main(["merge", "m1", "m2", *limits, "--sweep", "0:0.5:0.5", *kept]) == 0
    assert len(measured) == 2
    capfd.readouterr()
    assert main([*whole, *kept]) == 0
    assert len(measured) == 3
    found = [json.loads(text)["points"] for text in (shown.out, capfd.readouterr().out)]
    for point in (*found[0], *found[1]):
        point["summary"].pop("seconds", None)
    assert found[0] == found[1]
    assert main([*whole, *kept, "evaluation.holdout=3"]) == 2
    assert "holds results of other changes" in capfd.readouterr().err
    Path("points.json").write_text("[]")
    assert main([*whole, *kept]) == 2
    assert main(["merge", "m1", "m2", "--out", "o", *kept]) == 2


@pytest.mark.slow
def test_points_of_another_recipe_are_not_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """The first model is a run's, whose recipe, or whose test set, has changed; the weights are the same."""
    Path("run").mkdir()
    Path("m1").rename("run/model")
    Path("test.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    changes = ["model=m2", "evaluation.tasks=test.jsonl", "lr=1e-4", "learner.schedule.warmup=0", "evaluation.early=0"]
    changes.append("rollout.sampling.max_tokens=4")
    write = Path("run/recipe.yaml").write_text
    write(to_yaml(find_recipe("grpo", changes)))
    sweep = ("merge", "run", "m2", "--sweep", "0:0:1", "--keep", "points.json", "--method", "task_arithmetic")
    assert main([*sweep]) == main([*sweep]) == 0
    write(to_yaml(find_recipe("grpo", [*changes, "evaluation.correct_at=0.5"])))
    assert main([*sweep]) == 2
    assert "holds results of other recipe" in capfd.readouterr().err
    write(to_yaml(find_recipe("grpo", changes)))
    Path("test.jsonl").write_text('{"prompt": "1+2=", "answer": "3"}\n')
    assert main([*sweep]) == 2
    assert "holds results of other tasks" in capfd.readouterr().err


def run_with_search(folder: Path) -> None:
    """The folder of a run whose evaluation searches with a value model, which is in its checkpoint."""
    changes = ["model=m1", "tasks.size=12", "evaluation.holdout=2", "lr=1e-4", "learner.schedule.warmup=0"]
    search = "{kind: best_of, n: 2, sampling: {max_tokens: 3}}"
    changes += ["models.value={source: m2, head: reward}", f"evaluation.search={search}", "evaluation.early=0"]
    (folder / "checkpoints/step_1/models").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(to_yaml(find_recipe("grpo", changes)))
    Path("m1").rename(folder / "model")
    value = load_policy("value", Model(source="m2", head="reward"), {}, torch.device("cpu"))
    value.save(folder / "checkpoints/step_1/models/value")


def test_a_sweep_searches_as_the_run_does(capfd: pytest.CaptureFixture[str]) -> None:
    """The tasks and the search are those of the first model's run, with the run's value model."""
    run_with_search(Path("run"))
    limits = ("evaluation.sampling.max_tokens=3", "threads=1", "--json")
    assert main(["merge", "run", "m2", "--method", "task_arithmetic", "--sweep", "0:1:1", *limits]) == 0
    points = json.loads(capfd.readouterr().out)["points"]
    assert [point["summary"]["tasks"] for point in points] == [2, 2]
    assert [point["summary"]["searched"]["rollouts"] for point in points] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("method", "setting"),
    [("task_arithmetic", "alpha=1"), ("ties", "rate=0"), ("svd", "share=1")],
)
def test_coefficient_one_is_the_other_model(method: str, setting: str) -> None:
    assert main(["merge", "m1", "m2", "--method", method, setting, "--out", "made"]) == 0
    other, made = (load_file(f"{name}/model.safetensors") for name in ("m2", "made"))
    assert made.keys() == other.keys() and all(torch.equal(made[n], other[n]) for n in made)


@pytest.mark.parametrize("method", ["aim", "sens"])
def test_informed_by_texts(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"{i}+1=", "completion": f" {i + 1}"} for i in range(5)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["merge", "m1", "m2", "--method", method, "--calibration", "texts.jsonl", "--out", "made"]) == 0
    a, made = (load_file(f"{name}/model.safetensors") for name in ("m1", "made"))
    assert made.keys() == a.keys() and any(not torch.equal(made[n], a[n]) for n in made)
