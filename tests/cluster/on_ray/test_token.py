"""The token of a Ray is its owner's alone, and a Ray that refuses a run leaves nothing."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from posttrain.cluster._processes import marked
from tests.cluster.running import needs_ray


@needs_ray
@pytest.mark.slow
def test_the_token_is_the_owners_alone_and_not_in_a_command_line(session: Any) -> None:
    token = session.folder / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_bytes()
    own = [pid for pid, folder in marked().items() if folder == str(session.folder)]
    assert own
    assert not any(secret in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in own)


@needs_ray
@pytest.mark.slow
def test_a_ray_that_is_there_refuses_another_token(session: Any, tmp_path: Path) -> None:
    """A process of its own, since this one has joined already. Ray tries 20 times by default."""
    import ray

    there: Any = ray
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    address = there.get_runtime_context().gcs_address
    code = (
        "from posttrain.cluster._opened import join\n"
        "from posttrain.errors import UserError\n"
        "try:\n"
        f"    join('{address}', dict(log_to_driver=False, configure_logging=False))\n"
        "except UserError as error:\n"
        "    print('refused:', error)\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["RAY_NUM_REDIS_GET_RETRIES"] = "2"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert f"refused: the Ray at {address} did not let this process in" in done.stdout
    assert str(token) in done.stdout


@needs_ray
@pytest.mark.slow
def test_a_run_that_a_ray_refuses_leaves_no_folder_and_a_resumed_one_stays_as_it_is(
    session: Any, tiny: Path, tmp_path: Path
) -> None:
    """A Ray that is there has too few CPUs free."""
    import ray

    there: Any = ray
    size = ["steps=1", "prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=4", "evaluation.holdout=2", "threads=1"]
    joined = ["cluster=ray", f"cluster.address={there.get_runtime_context().gcs_address}", "cluster.samplers=64"]
    environment = {**os.environ, "RAY_AUTH_TOKEN_PATH": str(session.folder / "token")}

    def called(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "posttrain", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)

    grpo = ["run", "grpo", *size, f"model={tiny}", "--runs", str(tmp_path / "runs")]
    refused = called(*grpo, *joined)
    assert refused.returncode == 2 and "cluster.samplers=64" in refused.stderr and "are free of the" in refused.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
    assert called(*grpo).returncode == 0
    (run,) = [folder for folder in (tmp_path / "runs").iterdir() if folder.is_dir()]
    before = contents(run)
    refused = called("resume", str(run), "steps=2", *joined)
    assert refused.returncode == 2 and "are free of the" in refused.stderr
    after = contents(run)
    changed = sorted(file.name for file in after if after[file] != before.get(file))
    assert set(changed) <= {"history.jsonl", ".lock"}, "which states that it was opened"
    assert before.keys() <= after.keys() and '"changed"' not in (run / "history.jsonl").read_text()


def contents(folder: Path) -> dict[Path, bytes]:
    """Of all files below a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@needs_ray
@pytest.mark.slow
def test_the_token_is_in_no_file_of_a_run_no_log_of_its_ray_and_no_command_line(tmp_path: Path) -> None:
    """Looked for while the run goes on and when it has ended: in all command lines of this machine, everything below
    the run's folder and Ray's own, and what the command prints. No other user can enter its folder at any time, also
    not while Ray starts."""
    command = [sys.executable, "-m", "posttrain", "run", "grpo", "checkpoints.every_steps=1", "threads=1"]
    command += ["steps=12", "prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=4", "evaluation.holdout=2"]
    command += ["cluster=ray", "cluster.cpus=0.5", "cluster.learners=2", "learner.micro_batch_tokens=64"]
    command += ["--runs", str(tmp_path / "runs")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    metrics, until, modes = tmp_path / "runs" / "grpo-1" / "metrics.jsonl", time.monotonic() + 120, list[int]()
    try:
        while not metrics.is_file() or not metrics.read_bytes().count(b"\n"):
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < until
            modes += [stat.S_IMODE(folder.stat().st_mode) for folder in folders_of(running.pid) if folder.exists()]
            time.sleep(0.05)
        (token,) = (folder / "token" for folder in folders_of(running.pid))
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert len(modes) > 5 and set(modes) == {0o700}, "from the first process of its Ray on"
        secret = token.read_bytes()
        assert len(secret) == 64
        assert command_lines_with(secret) == [] and len(command_lines_with(str(token.parent).encode())) > 3
        logs = [file for file in token.parent.rglob("*") if file.is_file() and file != token]
        assert sum(file.suffix in (".log", ".out", ".err") for file in logs) > 5
        assert [file for file in logs if secret in file.read_bytes()] == []
        printed = running.communicate(timeout=200)[0]
    finally:
        running.kill()
        running.wait()
    assert not token.exists()
    assert running.returncode == 0 and secret not in printed
    files = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    assert len(files) > 10 and [file for file in files if secret in file.read_bytes()] == []


def folders_of(run: int) -> set[Path]:
    """The folder of the Ray that a process has started."""
    return {Path(folder) for pid, folder in marked().items() if parent_of(pid) == run}


def parent_of(pid: int) -> int:
    """The number of a process's parent; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_lines_with(text: bytes) -> list[str]:
    """Processes of this machine that have a text in their command lines."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = file.read_bytes()
        except OSError:  # ended meanwhile
            continue
        found += [str(file)] if text in content else []
    return found
