"""A run that is killed and resumed is the run that was left alone, bit for bit."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.policies.folder import new_folder
from tests.runs.processes import GO, command, contents, finish, opened, steps_done, wait
from tests.warm import POSSIBLE, Warm

STEPS = 36
RECIPE = """
from dataclasses import replace
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft

def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6

def everything():
    "Imitation, then PPO with a critic, a reference, several passes and memory in every part that can have it."
    recipe = ppo()
    imitation = replace(sft_of(sft()), max_steps=8, batch=8)
    return replace(recipe, stages={"sft": imitation, "rl": replace(rl_of(recipe), steps=28, prompts=3)})
"""
SETTINGS = [
    "model=tiny",
    "tasks.size=120",
    "evaluation.holdout=10",
    "evaluation.every=9",
    "evaluation.samples=2",
    "rollout.n=3",
    "rollout.sampling.max_tokens=12",
    "reward=mine.py:score",
    "checkpoints.every_steps=3",
    "threads=1",
    "engine.slots=7",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "mine.py").write_text(RECIPE)
    new_folder(folder / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    finish(command(place, "run", "mine.py:everything", *SETTINGS, "--runs", "alone"))
    run = place / "alone" / "ppo-1"
    assert steps_done(run) == STEPS
    return run


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm | None]:
    """Where a command starts in milliseconds; without it each is a new interpreter."""
    made = Warm(tmp_path / "warm", {**os.environ, "OMP_NUM_THREADS": "1", "CI": "true"}) if POSSIBLE else None
    yield made
    if made:
        made.close()


@pytest.mark.slow
def test_ten_kills_change_nothing(place: Path, undisturbed: Path, warm: Warm | None) -> None:
    rng = random.Random(7)
    run = place / "killed" / "ppo-1"
    kills = 0
    process = command(place, "run", "mine.py:everything", *SETTINGS, "--runs", "killed", held_at=STEPS)
    # A kill comes somewhere in the steps after each of these; checkpoints every third step let the run get on.
    # It waits at the end of its last step, so that it is not over before the last kill.
    for target in sorted(rng.sample(range(STEPS - 2), 10)):
        while steps_done(run) < target or opened(run) == kills:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.15))
        warm.kill(process) if warm and kills else process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        kills += 1
        process = command(place, "resume", str(run), held_at=STEPS, warm=warm)
    (place / GO).touch()
    finish(process)
    (place / GO).unlink()
    assert kills == 10
    assert contents(run) == contents(undisturbed)
    assert opened(run) == 11


@pytest.mark.slow
def test_sigterm_saves_and_states_how_to_go_on(place: Path, undisturbed: Path) -> None:
    settings = [setting.replace("every_steps=3", "every_steps=0") for setting in SETTINGS]
    process = command(place, "run", "mine.py:everything", *settings, "--runs", "asked", held_at=15)
    run = place / "asked" / "ppo-1"
    while steps_done(run) < 15:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    process.terminate()
    (place / GO).touch()
    output = wait(process)
    (place / GO).unlink()
    assert process.returncode == 130, output
    assert "everything is saved. Go on with: posttrain resume" in output
    assert steps_done(run) == 15
    finish(command(place, "resume", str(run)))
    # Only the setting that was changed for this test may differ.
    ours, theirs = contents(run), contents(undisturbed)
    assert {name for name in ours | theirs if ours.get(name) != theirs.get(name)} == {"recipe.yaml"}


@pytest.mark.slow
def test_the_same_command_again_gives_the_same_numbers(place: Path, undisturbed: Path) -> None:
    finish(command(place, "run", "mine.py:everything", *SETTINGS, "--runs", "again"))
    assert contents(place / "again" / "ppo-1") == contents(undisturbed)
