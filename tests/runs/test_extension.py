"""A run that gets more steps, after its end or in the middle, is the run that was started with that many."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import posttrain
from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from tests.runs.processes import contents, history
from tests.stages.resuming import PullThePlug

pytestmark = pytest.mark.slow  # seconds for many of them

SMALL = (
    "model=tiny",
    "tasks.size=60",
    "evaluation.holdout=4",
    "evaluation.every=3",
    "prompts=2",
    "rollout.n=3",
    "rollout.sampling.max_tokens=8",
    "threads=1",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extension")
    new_folder(folder / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(place)
    yield
    torch.set_num_threads(threads)


def run(root: str, *changes: str, view: LiveView | None = None, recipe: str = "grpo") -> Path:
    return start(find_recipe(recipe, [*SMALL, *changes]), Path(root), view or LiveView(lines=True))[0]


@pytest.fixture(scope="module")
def long(place: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return run("long", "steps=6").absolute()


def test_a_run_that_has_ended_goes_on(long: Path) -> None:
    short = run("short", "steps=3")
    assert contents(short) != contents(long)
    assert main(["resume", str(short), "steps=6"]) == 0
    assert contents(short) == contents(long)
    told = [message for kind, message in history(short) if kind in ("changed", "rewound")]
    assert told == [
        "the recipe was changed and accepted: steps was 3 and is 6",
        "went back to step 2; steps done again because no checkpoint held them: 1",
    ]
    assert json.loads((short / "summary.json").read_text())["steps"] == 6
    before = contents(short)
    assert main(["resume", str(short)]) == 0
    assert contents(short) == before, "and it has ended"


def test_twice_from_python(long: Path) -> None:
    short = run("twice", "steps=2")
    posttrain.resume(short, steps=4, quiet=True)
    result = posttrain.resume(short, changes=["steps=6"], quiet=True)
    assert len(result.metrics) == 6
    assert contents(short) == contents(long)


def test_in_the_middle(long: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run("middle", "steps=3", "checkpoints.every_steps=1", view=PullThePlug(2))
    folder = Path("middle/grpo-1")
    resume(folder, LiveView(lines=True), ["steps=6", "checkpoints.every_steps=50"])
    assert contents(folder) == contents(long)


def test_an_edited_recipe_of_a_run_that_has_ended(long: Path) -> None:
    short = run("edited", "steps=3")
    written = short / "recipe.yaml"
    written.write_text(written.read_text().replace("    steps: 3\n", "    steps: 6\n"))
    with pytest.raises(UserError, match="steps was 3 and is 6"):
        resume(short, LiveView(lines=True))
    resume(short, LiveView(lines=True), accept_changes=True)
    assert contents(short) == contents(long)


def test_a_larger_budget() -> None:
    whole = run("whole", "steps=6")
    short = run("cheap", "steps=6", "budget=60", "checkpoints.every_steps=1")
    done = json.loads((short / "summary.json").read_text())["steps"]
    assert 1 <= done < 6
    resume(short, LiveView(lines=True), ["budget=null", "checkpoints.every_steps=50"])
    assert contents(short) == contents(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["lr=1e-3"], "stage rl of {run} has ended, so a change of its settings would do nothing"),
        (["steps=1"], "stage rl of {run} has ended, so a change of its settings would do nothing"),
        (["evaluation.samples=3"], "{run} has ended, and the change gives it nothing to do. More steps continue it"),
        (["stesp=9"], "no field 'stesp' in this recipe"),
    ],
)
def test_a_change_that_would_do_nothing(changes: list[str], message: str) -> None:
    folder = Path("ended/grpo-1")
    if not folder.exists():
        run("ended", "steps=2")
    before = contents(folder)
    with pytest.raises(UserError) as error:
        resume(folder, LiveView(lines=True), changes)
    assert message.format(run=folder) in str(error.value)
    assert contents(folder) == before and not any(kind == "changed" for kind, _ in history(folder))


def test_a_stage_that_has_ended_before_another() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(
            "two",
            "sft.max_steps=2",
            "rl.steps=3",
            "checkpoints.every_steps=1",
            view=PullThePlug(4),
            recipe="quickstart",
        )
    folder = Path("two/quickstart-1")
    for change in ("sft.batch=2", "sft.max_steps=4"):
        with pytest.raises(UserError, match="stage sft of two/quickstart-1 has ended"):
            resume(folder, LiveView(lines=True), [change])
    resume(folder, LiveView(lines=True), ["rl.steps=2"])
    assert json.loads((folder / "summary.json").read_text())["steps"] == 4


def test_fewer_steps_than_are_done() -> None:
    with pytest.raises(KeyboardInterrupt):
        run("fewer", "steps=5", "checkpoints.every_steps=1", view=PullThePlug(4))
    folder = Path("fewer/grpo-1")
    with pytest.raises(UserError, match="has done 3 steps, so it cannot end after 2"):
        resume(folder, LiveView(lines=True), ["steps=2"])
    resume(folder, LiveView(lines=True), ["steps=4"])
    assert json.loads((folder / "summary.json").read_text())["steps"] == 4


def test_what_follows_the_number_of_steps_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """Linear decay: after 2 of 4 steps half the rate, of 8 steps three quarters of it."""
    kl = ["penalties.kl={kind: kl, coefficient: 0.1, final: 0.0, until: 1.0}", "models.reference.source=role:policy"]
    linear = "learner.schedule={kind: linear}"
    with pytest.raises(KeyboardInterrupt):
        run("linear", "steps=4", linear, *kl, "checkpoints.every_steps=1", view=PullThePlug(3))
    folder = Path("linear/grpo-1")
    resume(folder, LiveView(lines=True), ["steps=8"])
    [told] = [message for kind, message in history(folder) if kind == "changed"]
    assert "the schedule linear of stage rl follows the number of steps: 2 steps are learned at the rates of 4" in told
    assert "the next is at 0.75 of the peak rate, where it would have been 0.5" in told
    assert "kl in stage rl change with the share of the steps that are done: that was 0.5 and is 0.25" in told
    assert "a run of 8 steps from the start would differ" in told
    assert "the schedule linear of stage rl" in capfd.readouterr().out
