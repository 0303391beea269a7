"""Streamed episodes of an environment in workers: resumed in the middle to the bit, or started anew and counted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.component.user_code import allowing
from posttrain.components.environments import Resumes
from posttrain.components.environments.foreign import Foreign
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._exchange import Form
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.components.rollouts.step_search import StepSearch
from posttrain.components.rollouts.turns import Turns
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.tree import Recipe
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from tests.conformance.test_methods import run
from tests.stages import resuming
from tests.stages.resuming import PullThePlug, cut_off_and_resumed
from tests.stages.rl.test_stream import same, streamed

GAME = """
from pathlib import Path
class Game:
    def __init__(self, folder):
        self.folder = Path(folder)
    def reset(self, seed):
        self.total, self.turns, self.last = seed % 97, 0, 1 + seed % 8
        return f"{self.total}" + (self.folder / "noise").read_text()
    def step(self, action):
        with open(self.folder / "asked", "a") as file: file.write("x")
        noise = (self.folder / "noise").read_text()
        self.total, self.turns = (31 * self.total + sum(map(ord, action))) % 97, self.turns + 1
        return f"{self.total}{noise}", self.total / 97, self.turns == self.last, False, {}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)


def rollouts(game: Foreign) -> dict[str, Rollout]:
    """Rollouts of several requests."""
    sampling = Sampling(max_tokens=5, stop=tuple("aeiou135"))
    return {
        "episodes": Turns(environment=game, n=2, max_turns=8, sampling=sampling),
        "dialogues": Dialogue(n=2, max_turns=6, form=Form(view="{context}{question}"), sampling=sampling),
        "searches": StepSearch(environment=game, n=2, max_turns=4, sampling=sampling),
    }


def played(tiny: Path, folder: Path, way: Resumes = "replay", kind: str = "episodes") -> Recipe:
    (folder / "game.py").write_text(GAME)
    (folder / "noise").write_text("")
    recipe = streamed(Streaming(eta=2, piece=1, learning=1), tiny, folder, steps=5)
    own: Any = recipe.stages["rl"]
    game = Foreign(source=f"{folder}/game.py:Game", arguments={"folder": str(folder)}, goes_on=way)
    return replace(recipe, stages={"rl": replace(own, rollout=rollouts(game)[kind])})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["episodes", "dialogues", "searches"])
def test_what_goes_on_over_steps_resumes_to_the_bit(kind: str, tiny: Path, tmp_path: Path) -> None:
    """Cut off in the middle: episodes in workers are played again, and every answer is compared."""
    recipe = played(tiny, tmp_path, kind=kind)
    models, one = run(recipe, tmp_path / "whole")
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert again.metrics() == one.metrics()
    assert any(entry["groups_running"] for entry in one.metrics())
    assert not any(entry["episodes_anew"] for entry in one.metrics())
    for step in one.rollout_steps():
        assert again.rollouts(step) == one.rollouts(step)
    assert again.stream() == one.stream()
    assert same(models, resumed)


@pytest.mark.slow
def test_an_environment_that_changed_meanwhile_starts_its_episodes_anew(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = played(tiny, tmp_path)

    class Changing(PullThePlug):
        def step(self, metrics: Any, timing: Any) -> None:
            if metrics["step"] == self._at:
                (tmp_path / "noise").write_text("!")
            super().step(metrics, timing)

    monkeypatch.setattr(resuming, "PullThePlug", Changing)
    models, store = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    anew = [entry["episodes_anew"] for entry in store.metrics()]
    assert len(anew) == 5
    assert not any(anew[:2]) and sum(anew[2:]) >= 1
    models["policy"].save(store.folder / "model")
    (tmp_path / "noise").write_text("?")
    with allowing(trust=True):
        again, _ = replay(store.folder, tmp_path / "again", LiveView(lines=True))
    assert different_files(store.folder / "model", again / "model") == [], "both kinds of answers are in the record"
    lines = [json.loads(line) for line in (store.folder / "stream.jsonl").read_text().splitlines()]
    kept = [line.pop("anew") for line in lines]
    assert any(kept)
    (store.folder / "stream.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(UserError, match=r"cannot be computed again: in step [345] episodes started anew.*an earlier"):
        replay(store.folder, tmp_path / "third", LiveView(lines=True))


@pytest.mark.slow
def test_answers_of_the_record_are_not_requested_again(tiny: Path, tmp_path: Path) -> None:
    """The same run requests fewer turns of its environment than where they are played again."""
    counts = []
    for way in ("replay", "record"):
        folder = tmp_path / way
        folder.mkdir()
        recipe = played(tiny, folder, way)  # type: ignore[arg-type]
        cut_off_and_resumed(recipe, folder / "cut", at=3)
        counts.append(len((folder / "asked").read_text()))
    assert counts[1] < counts[0]
