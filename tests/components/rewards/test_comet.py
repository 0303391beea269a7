"""The reward of a COMET model in a role: copies, what is cut, a run, and scores of a file."""

import asyncio
import json
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.comet import Comet
from posttrain.components.rewards.translated import Translated
from posttrain.engines.native import Native
from posttrain.types import Group, Score, Task
from tests.components.rewards.judging import attempt
from tests.policies.comets import GOOD, OTHER, SOURCE, made, opened

ITEM = Task(key="k", prompt="p", answer=GOOD, fields={"source": SOURCE})


def scores(reward: Reward, folder: Path, *texts: str, task: Task = ITEM) -> list[Score]:
    """Those of one group."""
    group = Group(key="g", trajectories=tuple(attempt(text, task) for text in texts))

    async def requested() -> list[Score]:
        context = RewardContext(samplers={"comet": Native().serve(opened(folder), 0).bind("reward")})
        return list(await reward.score(group, context))

    return asyncio.run(requested())


def test_translations(tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    folder, reward = made(tmp_path, final_activation="Sigmoid"), Comet()
    found = scores(reward, folder, GOOD, OTHER, SOURCE, "", GOOD)
    values = [score.value for score in found]
    assert 0.0 < values[0] < 1.0 and values[0] not in values[1:4] and values[2:4] == [0.0, 0.0]
    assert values[4] == values[0] == scores(reward, folder, GOOD)[0].value
    [long] = scores(reward, folder, f"</s> {GOOD} " * 4000)
    assert long.parts["cut"].value == 1.0 and found[0].parts["cut"].value == 0.0
    form = f"<think>x</think><translate>{GOOD}</translate>"
    [mixed] = scores(Translated(measure="mix", semantic=reward), folder, form)
    assert mixed.parts["meaning"].value == values[0]
    assert scores(reward, folder, GOOD, task=Task(key="k", prompt="", answer=GOOD))[0].status == "error"


def test_a_reference_that_the_model_needs(tmp_path: Path) -> None:
    folder = made(tmp_path, "regression_metric")
    [found] = scores(Comet(), folder, GOOD, task=Task(key="k", prompt=SOURCE, answer=None))
    assert found.status == "error" and "a reference, which the task lacks" in found.explanation
    assert scores(Comet(copy_at=None, correct_at=0.01), folder, GOOD)[0].status in ("ok", "wrong")


@pytest.mark.slow
def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sacrebleu")
    monkeypatch.chdir(tmp_path)
    folder = made(Path("model"), final_activation="Sigmoid")
    row = {"prompt": "Translate.", "source": SOURCE, "answer": GOOD}
    Path("mine.jsonl").write_text(json.dumps(row | {"completion": OTHER}) + "\n")
    assert main(["score", "comet", "mine.jsonl", "--model", str(folder), "--json"]) == 0
    [found] = json.loads(capfd.readouterr().out)["scores"]
    assert found["value"] == pytest.approx(scores(Comet(), folder, OTHER)[0].value)
    assert main(["score", "comet", "mine.jsonl"]) == 2
    assert "--model comet=FOLDER" in capfd.readouterr().err
    given = [
        "tasks=mine.jsonl",
        "reward=comet",
        "reward.copy_at=null",
        "audit=null",
        "steps=1",
        "prompts=2",
        "rollout.n=2",
    ]
    given += ["evaluation.by=none", "rollout.sampling.max_tokens=4", "device=cpu"]
    Path("mine.jsonl").write_text("".join(json.dumps(row | {"prompt": f"{i}?"}) + "\n" for i in range(4)))
    assert main(["run", "dr_grpo", *given]) == 2
    assert "models.comet.source" in capfd.readouterr().err
    named = f"models.comet.source={folder}"
    assert main(["run", "dr_grpo", *given, named, "--dry-run"]) == 0
    assert "comet: model, 1,647 parameters" in capfd.readouterr().out
    assert main(["run", "dr_grpo", *given, named]) == 0
    assert "comet" in json.loads(next(Path("runs").glob("dr_grpo*/environment.json")).read_text())["models_sha256"]
    assert "reward/cut" in next(Path("runs").glob("dr_grpo*/metrics.jsonl")).read_text()
    (folder / "checkpoints" / "model.ckpt").unlink()
    capfd.readouterr()
    assert main(["run", "dr_grpo", *given, named]) == 2
    assert "the weights are missing" in capfd.readouterr().err
