"""Runs of MLflow in a local SQLite file, read back with its client."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.trackers.mlflow import MLflow
from posttrain.errors import RunFailed
from tests.components.trackers.sending import export, metrics, send_twice

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def library(libraries: None) -> None:
    for name in ("mlflow", "sqlalchemy"):
        pytest.importorskip(name, reason="needs posttrain[mlflow]: make test puts it in .trackers")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests, since making its tables takes seconds."""
    return tmp_path_factory.mktemp("store")


def only_run(folder: Path, experiment: str) -> tuple[Any, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return client, run


def points(client: Any, run: Any, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, key)]


def test_a_run_is_in_the_store(run: Path, store: Path) -> None:
    export(run, MLflow(out=str(store), experiment="whole", every=6, samples=3))
    client, found = only_run(store, "whole")
    assert found.info.run_name == run.name and found.info.status == "FINISHED"
    assert found.data.params["stages.rl.steps"] == "24" and found.data.params["evaluation.verifier"] == "None"
    assert points(client, found, "train/reward") == metrics(run, "reward")
    assert [step for step, _ in points(client, found, "eval/accuracy")] == [0, 6]
    assert found.data.metrics["summary/steps"] == 6
    names = [item.path for item in client.list_artifacts(found.info.run_id, "train_samples")]
    assert names == ["train_samples/step_000001.json", "train_samples/step_000006.json"]
    [file] = store.glob("mlartifacts/*/artifacts/train_samples/step_000006.json")
    table = json.loads(file.read_text())
    assert len(table["data"]) == 3 and table["columns"][:2] == ["task", "prompt"]


def test_a_resumed_run_has_each_step_once(run: Path, store: Path, tmp_path: Path) -> None:
    send_twice(run, MLflow(out=str(store), experiment="resumed"), tmp_path / "sent.json")
    client, found = only_run(store, "resumed")
    assert points(client, found, "train/reward") == metrics(run, "reward")
    assert points(client, found, "eval/accuracy")[0][0] == 0 and len(points(client, found, "eval/accuracy")) == 2
    assert found.info.status == "FINISHED"


def test_a_server_that_is_not_there_is_one_sentence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RunFailed, match="mlflow failed: MlflowException"):
        export(run, MLflow(out="http://127.0.0.1:9"))
