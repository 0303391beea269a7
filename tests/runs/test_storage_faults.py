"""Disks that fill up and folders that go away in the middle of a run: one sentence, nothing half-written, and after the
cause is gone a resumed run that ends bit for bit like one that was left alone.
"""

import contextlib
import errno
import gc
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from posttrain.cli import main
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.runs import checkpoints, files
from posttrain.runs.snapshot import save_snapshot
from tests.runs.processes import contents, history, steps_done

pytestmark = pytest.mark.slow

RECIPE = """
from dataclasses import replace
from pathlib import Path
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft

def score(prompts, completions, trainer_state):
    "A user's code runs in the middle of every step; here it does what fault.py states, once."
    fault = Path("fault.py")
    if trainer_state.global_step == 3 and fault.exists():
        code = fault.read_text()
        fault.unlink()
        exec(code)
    return [sum(map(ord, completion)) % 7 / 6 for completion in completions]

def small():
    recipe = ppo()
    imitation = replace(sft_of(sft()), max_steps=2, batch=4)
    return replace(recipe, name="small", stages={"sft": imitation, "rl": replace(rl_of(recipe), steps=5, prompts=2)})
"""
"""Steps 1 and 2 are imitation, 3 to 7 reinforcement; the fault comes in step 6, after the checkpoint of step 4 and
before that of step 6.
"""
SETTINGS = (
    "mine.py:small",
    "model=tiny",
    "tasks.size=40",
    "evaluation.holdout=4",
    "rollout.n=3",
    "rollout.sampling.max_tokens=8",
    "reward={kind: function, path: 'mine.py:score', time_limit: null}",  # in this process, which it is to harm
    "checkpoints.every_steps=2",
    "threads=1",
)
RUN = Path("runs/small-1")
SAFE = rf"Everything up to the newest checkpoint in {RUN}/checkpoints is safe\. "


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "mine.py").write_text(RECIPE)
    new_folder(folder / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    threads = torch.get_num_threads()
    with contextlib.chdir(place):
        assert main(["run", *SETTINGS]) == 0
    torch.set_num_threads(threads)
    assert steps_done(place / RUN) == 7
    return place / RUN


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    Path("tiny").symlink_to(place / "tiny")
    shutil.copy(place / "mine.py", "mine.py")
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cut_off(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of a run that was interrupted at once in step 6."""
    threads, folder = torch.get_num_threads(), tmp_path_factory.mktemp("cut")
    shutil.copytree(place / "tiny", folder / "tiny")
    shutil.copy(place / "mine.py", folder)
    (folder / "fault.py").write_text("raise KeyboardInterrupt")
    with contextlib.chdir(folder):
        assert main(["run", *SETTINGS]) == 130
        assert not Path("fault.py").exists(), "the fault has come"
        assert_whole("step_000002_1", "step_000004_1")
    torch.set_num_threads(threads)
    return folder / "runs"


@pytest.fixture
def interrupted(cut_off: Path, here: Path) -> Path:
    """That run, where this test is."""
    return shutil.copytree(cut_off, here / "runs") / RUN.name


@pytest.fixture
def run_fails(capfd: pytest.CaptureFixture[str], here: Path) -> Callable[..., str]:
    """Runs the recipe with a fault, in Python, and gives the one line that it must end with."""

    def run(fault: str, code: int = 1) -> str:
        Path("fault.py").write_text(fault)
        assert main(["run", *SETTINGS]) == code
        written = capfd.readouterr()
        assert "Traceback" not in written.out + written.err and "bug" not in written.err
        assert not Path("fault.py").exists(), "the fault has come"
        *others, last = written.err.splitlines()
        assert others in ([], ["Ctrl-C: finishing this step, then saving. Ctrl-C again stops at once."])
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    return run


def assert_whole(*names: str) -> None:
    """The checkpoints there are have these names, each is whole, and there is nothing beside them."""
    folder = RUN / "checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == list(names)
    assert [checkpoints.find_damage(folder / name) for name in names] == [None] * len(names)


def assert_resumes_to(undisturbed: Path) -> None:
    assert main(["resume", str(RUN)]) == 0
    assert contents(RUN) == contents(undisturbed)
    assert not [p for p in RUN.rglob(".*") if p.name != ".lock"], "nothing temporary is left"


# Folders that go away


def test_a_folder_that_is_deleted_does_not_come_back(run_fails: Callable[..., str], here: Path) -> None:
    assert run_fails(f"import shutil; shutil.rmtree('{RUN}')") == (
        f"cannot write {RUN}/metrics.jsonl: the folder {RUN} has been deleted or moved while the run was using it. "
        f"If it was moved, put it back and continue with: posttrain resume {RUN}"
    )
    assert list(Path("runs").iterdir()) == []
    assert main(["resume", str(RUN)]) == 2


def test_everything_above_it_may_go_too(run_fails: Callable[..., str]) -> None:
    assert "has been deleted or moved" in run_fails("import shutil; shutil.rmtree('runs')")
    assert not Path("runs").exists()


def test_a_folder_that_was_moved_can_be_put_back(run_fails: Callable[..., str], undisturbed: Path) -> None:
    assert "If it was moved, put it back" in run_fails(f"import os; os.rename('{RUN}', 'elsewhere')")
    assert not RUN.exists()
    Path("elsewhere").rename(RUN)
    assert_whole("step_000002_1", "step_000004_1")
    assert_resumes_to(undisturbed)


@pytest.mark.parametrize("part", ["rollouts", "evals"])
def test_a_part_of_the_record_that_is_deleted_is_missed(run_fails: Callable[..., str], part: str) -> None:
    message = run_fails(f"import shutil; shutil.rmtree('{RUN}/{part}')")
    assert message.startswith(f"cannot write {RUN}")
    assert f"then continue with: posttrain resume {RUN}" in message


# Disks that are full


@pytest.fixture
def small_disk(here: Path) -> Iterator[Path]:
    """A file system of its own of 4 MB where runs go."""
    disk = Path("runs")
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine allows no small file system to be mounted: {mounted.stderr.strip()}")
    yield disk
    gc.collect()  # what has a failed run's files open, in a circle with its traceback
    subprocess.run(["umount", str(disk)], check=True)


FILL = """
import os
with open("runs/filler", "ab", buffering=0) as filler:
    while True:
        try:
            filler.write(bytes(4096))
        except OSError:
            break
    os.truncate("runs/filler", filler.tell() - {left})
"""


@pytest.mark.parametrize(
    ("left", "file"),
    [
        (0, "metrics.jsonl|rollouts/step_000006.parquet"),
        (8192, "rollouts/step_000006.parquet"),
        (200_000, "checkpoints/step_000006_1"),
    ],
    ids=["no room at all", "room for a line", "room for all but a checkpoint"],
)
def test_a_disk_that_is_full(
    small_disk: Path, run_fails: Callable[..., str], undisturbed: Path, left: int, file: str
) -> None:
    assert re.fullmatch(
        rf"cannot write {RUN}/({file}): the disk is full\. {SAFE}"
        rf"Free some space, then continue with: posttrain resume {RUN}",
        run_fails(FILL.format(left=left)),
    )
    assert_whole("step_000002_1", "step_000004_1")
    assert main(["resume", str(RUN)]) == 1, "it is still full"
    assert_whole("step_000002_1", "step_000004_1")
    Path("runs/filler").unlink()
    assert_resumes_to(undisturbed)


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_as_safetensors_says_it(*_: object, **__: object) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("target", "raises"),
    [
        ("posttrain.policies.folder.save_file", full_as_safetensors_says_it),  # the weights
        ("safetensors.torch.save_file", full_as_safetensors_says_it),  # the state of the optimizers
        ("posttrain.runs.files.sync", full),
        ("posttrain.runs.checkpoints.replace_folder", full),
    ],
)
def test_a_disk_that_fills_up_anywhere_in_a_checkpoint(
    run_fails: Callable[..., str],
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    raises: Callable[..., None],
) -> None:
    with monkeypatch.context() as patched:

        def save_on_a_full_disk(*arguments: Any, **settings: Any) -> Path:
            if settings["step"] == 6:
                patched.setattr(target, raises)
            return save_snapshot(*arguments, **settings)

        patched.setattr("posttrain.runs.run.save_snapshot", save_on_a_full_disk)
        assert re.fullmatch(
            rf"cannot write {RUN}/checkpoints/step_000006_1: the disk is full\. {SAFE}"
            rf"Free some space, then continue with: posttrain resume {RUN}",
            run_fails("pass"),
        )
        assert_whole("step_000002_1", "step_000004_1")
    assert_resumes_to(undisturbed)


def test_a_disk_that_fills_up_under_the_final_model(
    run_fails: Callable[..., str], undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = LanguageModelPolicy.save

    def save_half(policy: LanguageModelPolicy, folder: Path) -> None:
        save(policy, folder)
        if folder.name == ".model-writing":
            (folder / "model.safetensors").unlink()
            full()

    with monkeypatch.context() as patched:
        patched.setattr(LanguageModelPolicy, "save", save_half)
        assert run_fails("pass").startswith(f"cannot write {RUN}/model: the disk is full. Everything up to the newest")
        assert not (RUN / "model").exists()
        assert_whole("step_000006_1", "step_000007_2")
    assert_resumes_to(undisturbed)


@pytest.mark.parametrize("name", ["summary.json", "report.html"])
def test_a_disk_that_fills_up_under_what_is_made_of_the_record(
    run_fails: Callable[..., str], undisturbed: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    put_in_place = files.put_in_place

    def run_full(temporary: Path, path: Path) -> None:
        if path.name == name:
            full()
        put_in_place(temporary, path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "put_in_place", run_full)
        assert run_fails("pass").startswith(f"cannot write {RUN}/{name}: the disk is full. Everything up to")
        assert not (RUN / name).exists()
    assert_resumes_to(undisturbed)
    assert (RUN / name).exists()


def test_files_that_may_not_be_as_large(run_fails: Callable[..., str], undisturbed: Path) -> None:
    """The system itself refuses, in the middle of a file of weights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        message = run_fails(f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, {before[1]}))")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.fullmatch(
        rf"cannot write {RUN}/checkpoints/step_000006_1: the file system allows no file as large as this\. {SAFE}"
        rf"Put that right, then continue with: posttrain resume {RUN}",
        message,
    )
    assert_whole("step_000002_1", "step_000004_1")
    assert_resumes_to(undisturbed)


# Checkpoints that are damaged


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage", "why"),
    [
        ("models/policy/model.safetensors", flip_a_bit, "models/policy/model.safetensors has changed: its SHA-256"),
        ("weights-critic.safetensors", flip_a_bit, "weights-critic.safetensors has changed: its SHA-256"),
        ("learner-policy.safetensors", lambda p: os.truncate(p, 100), "learner-policy.safetensors has 100 bytes inst"),
        ("state.json", Path.unlink, "state.json cannot be read (No such file or directory)"),
        ("manifest.json", lambda p: os.truncate(p, 9), "its manifest.json is missing or cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_reported(
    interrupted: Path, undisturbed: Path, file: str, damage: Callable[[Path], None], why: str
) -> None:
    damage(interrupted / "checkpoints" / "step_000004_1" / file)
    assert_resumes_to(undisturbed)
    told = history(RUN)
    [message] = [message for kind, message in told if kind == "bad checkpoint"]
    assert message.startswith(f"step_000004_1 is damaged and was passed over: {why}")
    [message] = [message for kind, message in told if kind == "rewound"]
    assert message == "went back to step 2; steps done again because no checkpoint held them: 3"
    assert_whole("step_000006_1", "step_000007_2")


def test_an_interrupted_run_ends_in_a_word(run_fails: Callable[..., str]) -> None:
    assert run_fails("raise KeyboardInterrupt", code=130) == "interrupted"
    assert_whole("step_000002_1", "step_000004_1")


def test_without_any_good_checkpoint_it_begins_again(interrupted: Path, undisturbed: Path) -> None:
    for checkpoint in (interrupted / "checkpoints").iterdir():
        flip_a_bit(checkpoint / "models" / "policy" / "model.safetensors")
    assert_resumes_to(undisturbed)
    told = history(RUN)
    assert [kind for kind, _ in told if kind == "bad checkpoint"] == ["bad checkpoint"] * 2
    assert ("rewound", "went back to step 0; steps done again because no checkpoint held them: 5") in told


def test_ctrl_c_finishes_the_step_and_saves(run_fails: Callable[..., str], undisturbed: Path) -> None:
    assert run_fails("import os, signal; os.kill(os.getpid(), signal.SIGINT)", code=130) == (
        f"stopped after step 6 (Ctrl-C); everything is saved. Go on with: posttrain resume {RUN}"
    )
    assert steps_done(RUN) == 6
    assert_whole("step_000004_1", "step_000006_1")
    assert_resumes_to(undisturbed)
    assert not [message for kind, message in history(RUN) if kind == "rewound"], "nothing is done twice"
