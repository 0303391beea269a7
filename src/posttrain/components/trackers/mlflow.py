"""MLflow: a local SQLite file, or a tracking server.

    mlflow ui --backend-store-uri sqlite:///runs/mlflow.db

Source: the client of MLflow's tracking interface, https://mlflow.org/docs/latest/ml/tracking. The recipe's leaves are
parameters, the whole recipe and the tables of samples are artifacts; a table is JSON of columns and rows.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker, flat
from posttrain.components.trackers._rows import COLUMNS, rows_of
from posttrain.datasets.extras import extra

_AT_ONCE = 100
"""Parameters of a request at most."""
_LONGEST_VALUE = 6_000
"""Characters of a parameter at most."""


@frozen
class MLflow(Tracker):
    """A run of an experiment of MLflow."""

    package: ClassVar[str] = "mlflow"
    experiment: str = "posttrain"
    """Name of the experiment."""
    out: str | None = None
    """Folder that gets ``mlflow.db`` and ``mlartifacts``, or the address of a tracking server (``http://...``), to
    which metrics, prompts and completions are sent; None takes the folder of the runs."""
    every: PositiveInt = 10
    """Steps between tables of rollouts."""
    samples: NonNegativeInt = 16
    """Samples in a table at most."""

    def open(self, run: TrackedRun) -> Session:
        """Begin a run, or go on with one."""
        tracking = extra("mlflow.tracking", "mlflow")
        out = self.out if self.out is not None else str(run.folder.parent)
        address, artifacts = out, None
        if "://" not in out:
            folder = Path(out).expanduser().resolve()
            folder.mkdir(parents=True, exist_ok=True)
            address, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "mlartifacts").as_uri()
        client = tracking.MlflowClient(tracking_uri=address)
        if run.reference:
            own = run.reference["run_id"]
            client.update_run(own, status="RUNNING")
        else:
            found = client.get_experiment_by_name(self.experiment)
            group = found.experiment_id if found else client.create_experiment(self.experiment, artifacts)
            own = client.create_run(group, run_name=run.name).info.run_id
            _write_recipe(client, own, run.recipe)
        return MLflowRun(client, own)


def _write_recipe(client: Any, run_id: str, recipe: Mapping[str, Any]) -> None:
    """The recipe's leaves as parameters, and all of it as ``recipe.json``."""
    entities = extra("mlflow.entities", "mlflow")
    parameters = [
        entities.Param(_key(name), str(value)[:_LONGEST_VALUE] or "''") for name, value in flat(recipe).items()
    ]
    for start in range(0, len(parameters), _AT_ONCE):
        client.log_batch(run_id, params=parameters[start : start + _AT_ONCE])
    client.log_text(run_id, json.dumps(recipe, indent=2), "recipe.json")


def _key(name: str) -> str:
    """A name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


class MLflowRun(Session):
    """A run of the library."""

    def __init__(self, client: Any, run_id: str) -> None:
        """`run_id` is the library's."""
        self._client, self._run_id = client, run_id
        self._metric = extra("mlflow.entities", "mlflow").Metric
        self.reference = {"run_id": run_id}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step, in one request."""
        now = round(time.time() * 1000)
        metrics = [self._metric(_key(name), float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table as an artifact."""
        text = json.dumps({"columns": COLUMNS, "data": rows_of(samples)}, ensure_ascii=False)
        self._client.log_text(self._run_id, text, f"{split}_samples/step_{step:06d}.json")

    def close(self, summary: Mapping[str, float] | None) -> None:
        """The summary as metrics without a step, and the end."""
        if summary:
            self.log(0, {f"summary/{name}": value for name, value in summary.items()})
        self._client.set_terminated(self._run_id, status="FINISHED" if summary is not None else "KILLED")
