import errno
import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posttrain.errors import RunFailed, UserError
from posttrain.runs import journal, store
from posttrain.runs.folders import make_run_folder
from posttrain.runs.journal import plain, read_lines
from posttrain.runs.store import RunStore, rollout_rows
from tests.runs.made_runs import RECIPE, evaluate, make_run, record_steps, trajectory


@pytest.fixture
def run(tmp_path: Path):
    with RunStore.create(tmp_path / "runs", "quickstart", RECIPE) as opened:
        yield opened


def test_folders_are_numbered_and_never_reused(tmp_path: Path) -> None:
    (tmp_path / "grpo-7").mkdir()
    (tmp_path / "grpo-x").mkdir()
    for expected in ("grpo-8", "grpo-9"):
        with RunStore.create(tmp_path, "grpo", {}) as made:
            assert (made.name, made.folder) == (expected, tmp_path / expected)
    shutil.rmtree(tmp_path / "grpo-8")
    with RunStore.create(tmp_path, "grpo", {}) as made:
        assert made.name == "grpo-10"


def test_names_that_are_no_folder_names(tmp_path: Path) -> None:
    for name, expected in [("a/b c", "a-b-c-1"), ("..", "run-1"), ("été", "été-1")]:
        with RunStore.create(tmp_path, name, {}) as made:
            assert made.name == expected


def test_runs_that_start_at_the_same_time_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: make_run_folder(tmp_path, "grpo"), range(40)))
    assert len(set(folders)) == 40


def test_a_root_that_cannot_hold_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"no run can be kept in .*file"):
        RunStore.create(tmp_path / "file", "grpo", {})


def test_recipe_and_environment_come_back(run: RunStore) -> None:
    assert run.recipe_tree() == RECIPE
    assert list(run.recipe_tree()["stages"]) == ["sft", "rl"]
    found = run.environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["cores"] >= 1
    assert found["packages"]["numpy"] == np.__version__
    assert found["command"] == sys.argv


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@example({"x": "a\x85b", "y": "\u2028", "z": "\ud800\0\t"})
@example({"\x85": None, "\x1f\x7f": 11 * "\U00010000" + "0 0"})
@given(st.dictionaries(st.text(), trees, max_size=4))
def test_any_recipe_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]) -> None:
    path = tmp_path_factory.mktemp("run")
    store._write_yaml(path / "recipe.yaml", tree)
    assert RunStore(path, None).recipe_tree() == tree


def test_what_is_logged_is_read(run: RunStore) -> None:
    run.log_metrics(1, "sft", 1, {"loss": 2.5, "gradient_norm": np.float32(0.5), "count": np.int64(3)})
    run.log_timing(1, "sft", 1, {"seconds_total": 0.25})
    run.log_event(1, "discard", "group \ud800 😀\n left out", groups=2, rewards=np.array([0.5, 1.0]))
    run.write_rollouts(1, rollout_rows([trajectory()], stage="rl"))
    run.write_evaluation(1, "sft", rollout_rows([trajectory(), trajectory(sample=1)]), {"accuracy": 0.5, "tasks": 1})
    assert run.metrics() == [
        {"step": 1, "stage": "sft", "stage_step": 1, "loss": 2.5, "gradient_norm": 0.5, "count": 3}
    ]
    assert run.timing() == [{"step": 1, "stage": "sft", "stage_step": 1, "seconds_total": 0.25}]
    assert run.events() == [
        {"step": 1, "kind": "discard", "message": "group \ud800 😀\n left out", "groups": 2, "rewards": [0.5, 1.0]}
    ]
    assert run.evaluations() == [{"step": 1, "name": "sft", "accuracy": 0.5, "tasks": 1}]
    assert run.rollout_steps() == [1]
    assert run.rollouts(1, ["task_key", "stage"]) == [{"task_key": "task-0", "stage": "rl"}]
    assert run.evaluation_rows(1, "sft", ["sample"], "sample > 0") == [{"sample": 1}]
    assert run.evaluation_rows(1, "before") == []
    assert [entry["kind"] for entry in run.history()] == ["started"]


def test_a_step_without_rollouts_is_an_error_that_names_those_there_are(run: RunStore) -> None:
    run.write_rollouts(3, rollout_rows([trajectory()]))
    with pytest.raises(UserError, match=r"no rollouts of step 5; those there are: 3"):
        run.rollouts(5)


def test_numbers_that_are_not_finite_become_null_and_the_file_stays_json(run: RunStore) -> None:
    run.log_metrics(1, "rl", 1, {"loss": math.nan, "other": np.float32("inf")})
    assert json.loads((run.folder / "metrics.jsonl").read_text())["loss"] is None
    assert run.metrics()[0]["other"] is None
    assert plain({"nested": {"k": [np.float32("inf"), 1]}}) == {"nested": {"k": [None, 1]}}


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        plain({"x": object()})


def test_plain_duckdb_reads_the_journals(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sft=2, rl=3, tasks=5)
    assert duckdb.sql(f"SELECT count(*), max(step) FROM '{folder}/metrics.jsonl'").fetchall() == [(5, 5)]
    [(best,)] = duckdb.sql(f"SELECT max(accuracy) FROM '{folder}/evals.jsonl'").fetchall()
    assert best == max(entry["accuracy"] for entry in RunStore.open(folder, reading=True).evaluations())


# Opening


def test_a_folder_that_is_no_run_names_the_nearest_runs(tmp_path: Path) -> None:
    for name in ("quickstart", "quickstart", "grpo"):
        RunStore.create(tmp_path, name, {}).close()
    with pytest.raises(UserError, match=r"there is no run .*quickstrat-1; did you mean .*quickstart-1"):
        RunStore.open(tmp_path / "quickstrat-1")
    with pytest.raises(UserError, match=r"is not a run: it holds no recipe.yaml; did you mean"):
        RunStore.open(tmp_path)
    with pytest.raises(UserError, match="there are no runs in"):
        RunStore.open(tmp_path / "elsewhere" / "x")


HOLD = """
import sys
from pathlib import Path
from posttrain.runs.store import RunStore

with RunStore.open(Path(sys.argv[1])) as held:
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_writes_and_others_may_read(run: RunStore) -> None:
    run.log_metrics(1, "rl", 1, {"reward": 1.0})
    folder = run.folder
    run.close()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"is in use by process {holder.pid} on"):
            RunStore.open(folder)
        with RunStore.open(folder, reading=True) as reader:
            assert reader.metrics()[0]["reward"] == 1.0
            with pytest.raises(AssertionError, match="reading only"):
                reader.log_metrics(2, "rl", 2, {})
        holder.kill()
        holder.wait()
    with RunStore.open(folder) as opened:
        opened.log_metrics(2, "rl", 2, {"reward": 2.0})
        assert len(opened.metrics()) == 2


def test_a_line_torn_by_a_kill_is_skipped_then_truncated_and_reported(run: RunStore) -> None:
    run.log_metrics(1, "rl", 1, {"reward": 1.0})
    run.close()
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "stage": "r')
    (run.folder / "rollouts" / ".step_000002.parquet.tmp").write_bytes(b"PAR1")
    assert len(RunStore.open(run.folder, reading=True).metrics()) == 1
    with RunStore.open(run.folder) as opened:
        opened.log_metrics(2, "rl", 2, {"reward": 2.0})
        assert [entry["reward"] for entry in opened.metrics()] == [1.0, 2.0]
        repaired = [entry for entry in opened.history() if entry["kind"] == "repaired"]
        assert [(entry["file"], entry["bytes"]) for entry in repaired] == [("metrics.jsonl", 23)]
        assert opened.events() == []
    assert list((run.folder / "rollouts").iterdir()) == []


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "stage": "rl"}\n[2]\n')
    with pytest.raises(UserError, match=r"metrics.jsonl line 2 is not an entry of a run"):
        read_lines(tmp_path / "metrics.jsonl")


# Going back


def content(folder: Path) -> dict[str, bytes]:
    """Every file that must be the same in a resumed and in an undisturbed run."""
    differs = {"timing.jsonl", "history.jsonl", "environment.json", ".lock"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in differs
    }


def do_steps(opened: RunStore, first: int, last: int) -> None:
    for step in range(first, last + 1):
        record_steps(opened, [(step, "rl", step, step / 10)])
        opened.log_event(step, "note", f"after step {step}")
        if step % 3 == 0:
            evaluate(opened, step, f"rl step {step}", step / 10, tasks=5)


@pytest.mark.parametrize("stopped_at", [5, 6, 9])
def test_a_resumed_run_leaves_what_an_undisturbed_one_leaves(tmp_path: Path, stopped_at: int) -> None:
    with RunStore.create(tmp_path / "a", "run", RECIPE) as whole:
        do_steps(whole, 1, 10)
    with RunStore.create(tmp_path / "b", "run", RECIPE) as first:
        do_steps(first, 1, 5)
        saved = json.loads(json.dumps(first.position()))
        do_steps(first, 6, stopped_at)
        first.write_document("summary.json", "{}")
    with (first.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": ')
    with RunStore.open(first.folder) as again:
        again.rewind(saved)
        assert not (again.folder / "summary.json").exists()
        assert again.position() == saved
        do_steps(again, 6, 10)
        undone = [entry["steps_undone"] for entry in again.history() if entry["kind"] == "rewound"]
    assert content(first.folder) == content(whole.folder)
    assert len(read_lines(first.folder / "timing.jsonl")) == 10
    assert undone == ([stopped_at - 5] if stopped_at > 5 else [])


def test_rewinding_to_nothing_is_the_start(run: RunStore) -> None:
    before = content(run.folder)
    do_steps(run, 1, 4)
    run.rewind({})
    assert content(run.folder) == before
    assert run.position()["step"] == 0


def test_an_evaluation_written_before_the_kill_but_after_the_checkpoint_is_forgotten(run: RunStore) -> None:
    do_steps(run, 1, 2)
    saved = run.position()
    evaluate(run, 2, "rl", 0.5, tasks=5)
    run.rewind(saved)
    assert run.evaluations() == []
    assert list((run.folder / "evals").iterdir()) == []


def test_a_journal_shorter_than_the_checkpoint_states_is_not_continued(run: RunStore) -> None:
    do_steps(run, 1, 2)
    saved = run.position()
    os.truncate(run.folder / "metrics.jsonl", 10)
    with pytest.raises(RunFailed, match=r"metrics.jsonl has 10 bytes, but \d+ were safe"):
        run.rewind({**saved, "step": 2})


# Disks


def test_a_full_disk_is_one_sentence_and_leaves_whole_lines(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run.log_metrics(1, "rl", 1, {"reward": 1.0})
    write = os.write

    def full_after_five_bytes(descriptor: int, data: bytes) -> int:
        if len(data) > 5 and data.startswith(b"{"):
            return write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal.os, "write", full_after_five_bytes)
    with pytest.raises(RunFailed, match=rf"metrics.jsonl: the disk is full\. .*posttrain resume {run.folder}"):
        run.log_metrics(2, "rl", 2, {"reward": 2.0})
    monkeypatch.undo()
    run.log_metrics(2, "rl", 2, {"reward": 3.0})
    assert [entry["reward"] for entry in run.metrics()] == [1.0, 3.0]


def test_a_deleted_folder_is_noticed_by_everything_that_writes(run: RunStore) -> None:
    shutil.rmtree(run.folder)
    for write in (
        lambda: run.log_metrics(1, "rl", 1, {}),
        lambda: run.write_rollouts(1, rollout_rows([trajectory()])),
        lambda: run.write_evaluation(1, "rl", rollout_rows([trajectory()]), {}),
        lambda: run.write_document("summary.json", "{}"),
        lambda: run.position(),
    ):
        with pytest.raises(RunFailed, match="has been deleted or moved"):
            write()
    assert not run.folder.exists()


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine allows no small file system to be mounted: {mounted.stderr.strip()}")
    try:
        with RunStore.create(tmp_path, "run", RECIPE) as opened:
            noise = np.random.default_rng(0).normal(size=60_000).astype(np.float32)
            with pytest.raises(RunFailed, match=r"step_000001\.parquet: the disk is full"):
                opened.write_rollouts(
                    1, rollout_rows([trajectory(completion="c" * 60_000)], columns=[{"value": noise}])
                )
            assert list((opened.folder / "rollouts").iterdir()) == []
            with pytest.raises(RunFailed, match=r"metrics.jsonl: the disk is full"):
                for step in range(1, 10_000):
                    opened.log_metrics(step, "rl", step, {"x" * 500: 0.5})
            assert opened.metrics()[-1]["x" * 500] == 0.5
            with pytest.raises(RunFailed, match="the disk is full"):
                opened.write_document("summary.json", "x" * 10_000)
            assert not (opened.folder / "summary.json").exists()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
