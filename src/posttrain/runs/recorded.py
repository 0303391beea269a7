"""What a run that was rewarded by a reward model recorded, for diagnostics."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.components.diagnostics import Record, Subject
from posttrain.errors import UserError
from posttrain.runs.store import RunStore

COLUMNS = (
    "task_key",
    "prompt",
    "completion",
    "reward",
    "score_status",
    "stop_reason",
    "token_ids",
    "trained",
    "sampled_logp",
)
SAMPLED = "sampled_logp IS NOT NULL"
"""Rows of rollouts, and not of pairs or demonstrations."""


def record_of(name: str, subject: Callable[[str], Subject]) -> Record:
    """The record of a run's folder. Raises `UserError` where it is none, or has no reward model or rollouts."""
    folder = Path(name)
    if not (folder / "recipe.yaml").is_file():
        raise UserError(f"'{name}' is no folder of a run; give one, or a policy and a reward model")
    store = RunStore.open(folder, reading=True)
    steps = [step for step in store.rollout_steps() if store.rollouts(step, ("sample",), SAMPLED)]
    kept = sorted(path for path in (folder / "checkpoints").glob("step_*") if (path / "models" / "reward").is_dir())
    if not kept or not steps:
        raise UserError(
            f"'{name}' has no {'checkpoint of a role reward' if not kept else 'recorded rollouts'}, so there is no "
            "proxy to compare with; give a policy and a reward model"
        )
    reference = kept[-1] / "models" / "reference"
    policy = reference if reference.is_dir() else _begun(store) or kept[0] / "models" / "policy"

    def read(most: int) -> Sequence[tuple[int, Sequence[Mapping[str, Any]]]]:
        last = len(steps) - 1
        chosen = [steps[round(i * last / max(min(most, last + 1) - 1, 1))] for i in range(min(most, last + 1))]
        return [(step, store.rollouts(step, COLUMNS, SAMPLED)) for step in dict.fromkeys(chosen)]

    alarms = [(int(event["step"]), str(event["message"])) for event in store.events() if event["kind"] == "alarm"]
    return Record(
        policy=subject(str(policy)),
        reward_model=subject(str(kept[-1] / "models" / "reward")),
        steps=read,
        alarms=alarms,
    )


def _begun(store: RunStore) -> str | None:
    """The model that the run began with, where it is still there."""
    from posttrain.policies.folder import bundled_names

    models = store.recipe_tree().get("models")
    given = models.get("policy") if isinstance(models, dict) else None
    source = str(given.get("source", "") if isinstance(given, dict) else given)
    return source if source in bundled_names() or (Path(source) / "config.json").is_file() else None
