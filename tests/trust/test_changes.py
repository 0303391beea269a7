"""What a resumed run notices of the machine that it comes back to."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from posttrain.policies.folder import new_folder
from posttrain.policies.tokenizer import Tokenizer
from posttrain.runs import changes
from posttrain.runs.changes import digest_of
from posttrain.runs.folders import name_missing
from posttrain.runs.store import RunStore
from posttrain.types import Preference, Task
from tests.runs.processes import history

pytestmark = pytest.mark.slow  # seconds for many of them

RUN = Path("runs/grpo-1")
SETTINGS = (
    "grpo", "model=tiny", "tasks=sums.jsonl", "evaluation.holdout=2", "steps=2", "prompts=2", "rollout.n=2",
    "rollout.sampling.max_tokens=4", "threads=1", "reward=mine.py:score", "checkpoints.every_steps=1",
)  # fmt: skip
ROWS = [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(12)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished run, made of a file of tasks and a file of rewards."""
    threads, folder = torch.get_num_threads(), tmp_path_factory.mktemp("finished")
    with contextlib.chdir(folder):
        new_folder(Path("tiny"), layers=1, width=16, heads=2, kv_heads=1, context=64)
        Path("mine.py").write_text("def score(completion):\n    return len(completion) / 4\n")
        write_tasks(ROWS)
        assert main(["run", *SETTINGS]) == 0
    yield folder
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, and in it."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_tasks(rows: list[dict[str, str]]) -> None:
    Path("sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_tasks_that_changed_stop_it_and_name_the_file(capfd: pytest.CaptureFixture[str]) -> None:
    model, metrics = (RUN / "model/model.safetensors").read_bytes(), (RUN / "metrics.jsonl").read_bytes()
    write_tasks([*ROWS[:-1], {"question": "11+1=", "answer": "13"}])
    capfd.readouterr()
    assert main(["resume", str(RUN)]) == 2
    assert capfd.readouterr().err.startswith("error: sums.jsonl changed since the run runs/grpo-1 began")
    assert (RUN / "model/model.safetensors").read_bytes() == model
    assert (RUN / "metrics.jsonl").read_bytes() == metrics
    Path("sums.jsonl").write_text("\n".join(json.dumps(row, indent=None, separators=(",", ":")) for row in ROWS))
    assert main(["resume", str(RUN)]) == 0, "the same tasks, written in another way"


def test_a_reward_that_changed_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def score(completion):\n    return 1.0\n")
    capfd.readouterr()
    assert main(["resume", str(RUN)]) == 2, "the run came from another folder, and this code was not named here"
    assert "mine.py:score" in capfd.readouterr().err
    assert main(["resume", str(RUN), "--trust-code"]) == 0
    said = "the reward in mine.py is not the one that the run began with; steps from here on are scored by the new one"
    assert f"changed: {said}" in capfd.readouterr().out
    assert ("changed", said) in history(RUN)


def test_another_kind_of_processor_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    path = RUN / "environment.json"
    began = json.loads(path.read_text())
    path.write_text(json.dumps({**began, "instructions": "sse2"}))
    capfd.readouterr()
    assert main(["resume", str(RUN)]) == 0
    now = began["instructions"]
    said = f"the processor's instruction set was sse2 and is {now}; numbers may be rounded differently"
    assert f"changed: {said}" in capfd.readouterr().out
    assert ("changed", said) in history(RUN)


@pytest.fixture(scope="module")
def near(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a second run has ended, whose policy stays near a frozen model of the user's own."""
    folder = tmp_path_factory.mktemp("near")
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    with contextlib.chdir(folder):
        new_folder(Path("teacher"), layers=1, width=16, heads=2, kv_heads=1, context=64, seed=1)
        assert main(["run", *SETTINGS, "models.reference.source=teacher", "rl.penalties={near: {kind: kl}}"]) == 0
    return folder


@pytest.fixture
def taught(near: Path, here: Path) -> Path:
    """That run, in a copy of its folder."""
    shutil.copytree(near, here, dirs_exist_ok=True)
    return Path("runs/grpo-2")


@pytest.mark.parametrize("role", ["reference", "policy"])
@pytest.mark.parametrize("fault", ["changed", "gone"])
def test_a_model_that_changed_or_is_gone_stops_it(
    taught: Path, role: str, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path({"reference": "teacher", "policy": "tiny"}[role])
    weights = folder / "model.safetensors"
    kept = weights.read_bytes()
    if fault == "gone":
        folder.rename("elsewhere")
    else:
        weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    metrics = (taught / "metrics.jsonl").read_bytes()
    capfd.readouterr()
    assert main(["resume", str(taught)]) == 2
    said = "changed since the run" if fault == "changed" else "is gone since the run"
    assert capfd.readouterr().err.startswith(f"error: models.{role}.source: the model in '{folder}' {said} {taught}")
    assert (taught / "metrics.jsonl").read_bytes() == metrics
    if fault == "gone":
        Path("elsewhere").rename(folder)
    else:
        weights.write_bytes(kept)
    assert main(["resume", str(taught)]) == 0


@pytest.fixture(scope="module")
def adapted(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the adapter of a second run was moved to another model, and trained on by a third run."""
    folder = tmp_path_factory.mktemp("adapted")
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    with contextlib.chdir(folder):
        assert main(["run", *SETTINGS, "models.policy.lora={rank: 2, targets: [q_proj]}"]) == 0
        Path("runs/grpo-2/model/adapter").rename("mine")
        new_folder(Path("based"), layers=1, width=16, heads=2, kv_heads=1, context=64)
        assert main(["run", *SETTINGS, "model=mine", "models.policy.base=based"]) == 0
    return folder


@pytest.mark.parametrize("fault", ["changed", "gone", "adapter gone"])
def test_the_model_that_an_adapter_is_made_for_is_inspected_too(
    adapted: Path, here: Path, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first run's base is `tiny`, which is still there; the recipe names another folder."""
    shutil.copytree(adapted, here, dirs_exist_ok=True)
    run, weights = Path("runs/grpo-3"), Path("based/model.safetensors")
    assert set(json.loads((run / "environment.json").read_text())["models_sha256"]) == {"policy", "policy's base"}
    kept = weights.read_bytes()
    if fault == "changed":
        weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        said = "the base of the model, in 'based' changed since the run"
    elif fault == "gone":
        Path("based").rename("elsewhere")
        said = "the base of the model, in 'based' is gone since the run"
    else:
        Path("mine").rename("elsewhere")
        said = "the model in 'mine' is gone since the run"
    capfd.readouterr()
    assert main(["resume", str(run)]) == 2
    assert capfd.readouterr().err.startswith(f"error: models.policy.source: {said} {run} began")
    if fault == "changed":
        weights.write_bytes(kept)
    else:
        Path("elsewhere").rename("based" if fault == "gone" else "mine")
    assert main(["resume", str(run)]) == 0


def test_of_a_large_file_a_model_s_digest_takes_blocks_and_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "READ_WHOLE", 64)
    monkeypatch.setattr(changes, "BLOCKS", 4)  # of 16 bytes, at 0, 328, 656 and 984
    folder = tmp_path / "large"
    folder.mkdir()
    digests = []
    for content in (bytes(1000), bytes(999), bytes(330) + b"1" + bytes(669), bytes(999) + b"1"):
        (folder / "model.safetensors").write_bytes(content)
        digests.append(changes.digest_of_model(folder))
    assert len(set(digests)) == 4
    (folder / "model.safetensors").write_bytes(bytes(100) + b"1" + bytes(899))
    assert changes.digest_of_model(folder) == digests[0], "between the blocks"
    (folder / "README.md").write_text("what the model is")
    assert changes.digest_of_model(folder) == digests[0]
    assert changes.digest_of_model(tmp_path / "nowhere") == changes.GONE


def test_tables_that_are_gone_are_reported_and_nothing_else_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    (RUN / "rollouts/step_000001.parquet").unlink()
    (RUN / "evals/step_000000.parquet").unlink()
    capfd.readouterr()
    assert main(["resume", str(RUN)]) == 0
    said = "gone since they were written: evals/step_000000.parquet, rollouts/step_000001.parquet. "
    assert f"incomplete record: {said}" in capfd.readouterr().out
    assert any(kind == "incomplete record" and message.startswith(said) for kind, message in history(RUN))
    with RunStore.open(RUN, reading=True) as run:
        assert run.summary()["gain"] is None
        assert run.summary()["accuracy_before"] is not None
        assert any("held-out answers after step 0 are gone" in warning for warning in run.summary()["warnings"])
    assert "incomplete record" in (RUN / "report.html").read_text()


def test_an_untouched_run_gets_no_message() -> None:
    assert main(["resume", str(RUN)]) == 0
    assert [kind for kind, _ in history(RUN)] == ["started", "opened"]


def test_alarms_go_back_to_checkpoints_of_the_schedule_only() -> None:
    """One that was written because time had passed, or because of a Ctrl-C, is there in one run and not in another."""
    saved = {path.name: json.loads((path / "state.json").read_text()) for path in (RUN / "checkpoints").iterdir()}
    assert saved["step_000001_0"]["healthy"] is True
    assert main(["run", *SETTINGS, "checkpoints.every_steps=0", "checkpoints.every_seconds=1e-9"]) == 0
    saved = {p.name: json.loads((p / "state.json").read_text()) for p in Path("runs/grpo-2/checkpoints").iterdir()}
    assert saved["step_000001_0"]["healthy"] is False


def test_a_chat_template_gets_the_same_date_on_every_day() -> None:
    Path("tiny/chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}")
    asked = Tokenizer.load(Path("tiny")).render_chat([{"role": "user", "content": "what day is it?"}])
    assert asked == "01 Jan 2026: what day is it?"


def test_everything_in_a_task_counts_in_its_digest() -> None:
    task = Task(key="a", prompt="1+1=", answer="2", fields={"level": 1})
    pair = Preference(chosen="2", rejected="3")
    others = [
        Task(key="b", prompt="1+1=", answer="2", fields={"level": 1}),
        Task(key="a", prompt="1+1= ", answer="2", fields={"level": 1}),
        Task(key="a", prompt="1+1=", answer="3", fields={"level": 1}),
        Task(key="a", prompt="1+1=", answer="2", fields={"level": 2}),
        Task(key="a", prompt="1+1=", answer="2", fields={"level": 1}, demonstrations=("2",)),
        Task(key="a", prompt="1+1=", answer="2", fields={"level": 1}, preferences=(pair,)),
    ]
    digests = [digest_of([one]) for one in (task, *others)]
    assert len(set(digests)) == len(digests)
    assert digest_of([task, others[0]]) != digest_of([others[0], task])
    again = Task(key="a", prompt="1+1=", answer="2", fields={"level": 1})
    assert digest_of([again]) == digests[0]
    odd = [Task(key="a", prompt="", fields={"thing": object()}) for _ in range(2)]
    assert digest_of(odd[:1]) == digest_of(odd[1:]), "an address is not content"


def test_lost_tables_are_named_where_they_are_known() -> None:
    assert name_missing([], [3, 4], 0) == "", "steps of imitation never had rollouts"
    assert "rollouts/step_000003.parquet, rollouts/step_000004.parquet. What" in name_missing([], [3, 4], 2)
    assert "written: 1 files of rollouts/. What" in name_missing([], [3, 4], 1)
    assert "step_000005.parquet and 2 more." in name_missing(range(1, 8), [], 0)
