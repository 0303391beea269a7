"""A run that a reward model rewarded is read back: which policy came first, which steps sampled, and what is no such
run."""

from pathlib import Path

import pytest

from posttrain.components.diagnostics import Subject
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.recorded import record_of
from posttrain.settings.reward_model_sums import reward_model_sums


def subject(name: str) -> Subject:
    return Subject(name=name, load=lambda: None, serve=lambda policy: None)  # type: ignore[arg-type,return-value]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder of a run; give one, or a policy and a reward model"):
        record_of(str(tmp_path), subject)


@pytest.mark.slow
def test_rollouts_of_the_reinforcement_are_read_and_no_pairs(tmp_path: Path) -> None:
    base = new_folder(tmp_path / "base", layers=1, width=16, heads=2, kv_heads=1, context=128)
    changes = [f"model={base}", "threads=1", "tasks.size=20", "evaluation.by=none", "alarms={}"]
    changes += ["reward_model.max_steps=2", "reward_model.batch=2", "rl.steps=3", "rl.prompts=2", "rl.rollout.n=2"]
    changes += [
        "rl.rollout.sampling.max_tokens=4",
        "checkpoints.every_steps=1",
        "checkpoints.keep=9",
        "rl.audit.most_fooled=1",
    ]
    run, _ = start(override(reward_model_sums(), changes), tmp_path / "runs", LiveView(lines=True))
    record = record_of(str(run), subject)
    assert record.policy.name == str(base)
    assert record.reward_model.name.endswith("models/reward") and not record.alarms
    steps = record.steps(12)
    assert [step for step, _ in steps] == [3, 4, 5] and [step for step, _ in record.steps(2)] == [3, 5]
    assert all(len(rows) == 4 and row["sampled_logp"] for _, rows in steps for row in rows)
    base.rename(tmp_path / "moved")
    first = sorted((run / "checkpoints").iterdir())[0]
    assert record_of(str(run), subject).policy.name == str(first / "models" / "policy"), "the first that is there"
