"""Answers of environments that are servers: written as they come, and never requested a second time."""

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.component.user_code import allowing
from posttrain.components.environments import Resumes
from posttrain.components.environments.foreign import Foreign
from posttrain.components.rollouts.turns import Turns
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling
from posttrain.errors import RunFailed
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.episodes import FILE, EpisodeJournal
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from tests.conformance.test_methods import run
from tests.stages.rl.test_stream import same, streamed

SERVER = """
import os, signal, time
from pathlib import Path
class Server:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.say("start")
    def say(self, text):
        with open(self.folder / "asked", "a") as file: file.write(text + "\\n")
    def reset(self, seed):
        self.seed, self.turns = seed, 0
        return f"{seed % 97}"
    def step(self, action):
        self.turns += 1
        self.say(f"{self.seed} {action!r}")
        pid = self.folder / "pid"
        if pid.exists() and len((self.folder / "asked").read_text().splitlines()) > 60:
            os.kill(int(pid.read_text()), signal.SIGKILL)
            time.sleep(60)
        total = sum(map(ord, action)) % 97
        return f"{total}", total / 97, total % 5 == 0, False, {}
    def reward(self):
        self.say("end")
        return 0.25
"""


def recipe_of(tiny: Path, folder: Path, schedule: Any, way: Resumes = "record") -> Recipe:
    """GRPO on a server, in a folder that has what the server was asked."""
    folder.mkdir(exist_ok=True)
    (folder / "server.py").write_text(SERVER)
    recipe = streamed(schedule, tiny, folder, steps=4)
    own: Any = recipe.stages["rl"]
    server = Foreign(
        source=f"{folder}/server.py:Server", arguments={"folder": str(folder)}, goes_on=way, repeatable=False
    )
    turns = Turns(environment=server, n=2, max_turns=6, sampling=Sampling(max_tokens=5, stop=tuple("aeiou135")))
    rare = replace(recipe.checkpoints, every_steps=3)
    return replace(recipe, stages={"rl": replace(own, rollout=turns)}, checkpoints=rare)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def cut(recipe: Recipe, root: Path, monkeypatch: pytest.MonkeyPatch, answers: int) -> Path:
    """The folder of a run that ended when this number of `answers` was written."""
    add, count = EpisodeJournal.add, [0]

    def counted(journal: EpisodeJournal, *answer: Any) -> None:
        add(journal, *answer)
        count[0] += 1
        if count[0] >= answers:
            raise KeyboardInterrupt

    context = RunContext(recipe, torch.device("cpu"))
    with monkeypatch.context() as patch, RunStore.create(root, recipe.name, to_tree(recipe)) as store:
        patch.setattr(EpisodeJournal, "add", counted)
        with pytest.raises(KeyboardInterrupt):
            Run(context, store, LiveView(lines=True)).execute(context.first_models())
    return store.folder


def resumed(recipe: Recipe, folder: Path) -> tuple[Any, RunStore]:
    context = RunContext(recipe, torch.device("cpu"))
    with RunStore.open(folder) as store:
        models = Run(context, store, LiveView(lines=True)).execute(context.first_models())
    return models, RunStore.open(folder, reading=True)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [InTurn(), Streaming(eta=2, piece=1, learning=1)], ids=["in_turn", "streaming"])
def test_what_was_answered_is_not_requested_again(
    schedule: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut in the middle of episodes, between checkpoints, twice: the server gets each request once."""
    whole, cuts = tmp_path / "whole", tmp_path / "cuts"
    models, one = run(recipe_of(tiny, whole, schedule), whole / "runs")
    recipe = recipe_of(tiny, cuts, schedule)
    folder = cut(recipe, cuts / "runs", monkeypatch, answers=len(asked(whole)) // 2)
    again, store = resumed(recipe, folder)
    assert store.metrics() == one.metrics()
    assert store.evaluations() == one.evaluations()
    assert [store.rollouts(step) for step in store.rollout_steps()] == [one.rollouts(step) for step in (1, 2, 3, 4)]
    assert same(models, again)
    in_flight = 2 * 8
    told, once = Counter(asked(cuts)), Counter(asked(whole))
    starts = told.pop("start") - once.pop("start")
    assert set(told) == set(once)
    assert (told - once).total() <= in_flight, "only what was on its way was requested twice"
    assert starts <= in_flight + 3, "an episode that has ended needs no server"


@pytest.mark.slow
def test_a_killed_run_does_not_ask_its_server_again(tiny: Path, tmp_path: Path) -> None:
    """kill -9, by the server itself, while it is asked."""
    folder = tmp_path / "game"
    recipe_of(tiny, folder, InTurn())
    code = (
        "import sys; from pathlib import Path; from tests.runs.test_episodes import *\n"
        "tiny, folder = map(Path, sys.argv[1:])\n"
        "run(recipe_of(tiny, folder, InTurn()), folder / 'runs')"
    )
    process = subprocess.Popen([sys.executable, "-c", f"import os\n{PID}\n{code}", str(tiny), str(folder)])
    assert process.wait() == -signal.SIGKILL
    (folder / "pid").unlink()
    before = len(asked(folder))
    [runs] = (folder / "runs").iterdir()
    assert not list((runs / "checkpoints").iterdir()), "nothing but the answers is kept"
    kept = (runs / FILE).read_text().count("step ")
    resumed(recipe_of(tiny, folder, InTurn()), runs)
    whole = tmp_path / "whole"
    run(recipe_of(tiny, whole, InTurn()), whole / "runs")
    told, once = Counter(asked(folder)), Counter(asked(whole))
    for counts in (told, once):
        del counts["start"]
    assert before > kept > 30
    assert (once - told).total() == 0
    assert (told - once).total() <= before - kept, "what was not answered when the run was killed"


@pytest.mark.slow
def test_a_run_that_is_computed_again_does_not_ask_its_server(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "game"
    recipe = recipe_of(tiny, folder, Streaming(eta=2, piece=1, learning=1))
    with allowing(trust=True):
        first, _ = start(recipe, folder / "runs", LiveView(lines=True))
        before = Counter(asked(folder))
        new, _ = replay(first, folder / "again", LiveView(lines=True))
    assert different_files(first / "model", new / "model") == []
    after = Counter(asked(folder))
    for counts in (before, after):
        del counts["start"]
    assert after == before


PID = "import sys, pathlib; pathlib.Path(sys.argv[2], 'pid').write_text(str(os.getpid()))"


def test_answers_are_taken_once_and_in_order(tmp_path: Path) -> None:
    journal = EpisodeJournal(tmp_path)
    for place in range(3):
        journal.add("a", place, {"n": place})
    size = journal.position()[FILE]
    journal.add("b", 0, {"n": 5})
    journal.add("a", 3, {"n": 3})
    journal.add("a", 0, {"n": "anew"})
    assert journal.take("a") == (), "they are of this process"
    journal.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"episode": "a", "pla')  # killed
    later = EpisodeJournal(tmp_path)
    later.go_on({FILE: size})
    assert later.take("a") == [(3, {"n": 3})]
    assert later.take("a") == [(0, {"n": "anew"})]
    assert later.take("a") == ()
    assert later.take("b") == [(0, {"n": 5})]
    later.add("c", 0, 1)
    later.close()
    again = EpisodeJournal(tmp_path)
    again.go_on({})
    assert again.take("c") == [(0, 1)], "an unfinished line does not spoil the next one"
    assert again.take("a") == [(place, {"n": place}) for place in range(4)]
    again.go_back()
    again.go_on({})
    assert again.take("b") == (), "the run went back, and draws anew"


def test_evaluations_have_episodes_of_their_own(tmp_path: Path) -> None:
    journal = EpisodeJournal(tmp_path)
    journal.of("0 before").add("a", 0, 1)
    journal.of("5 rl").add("a", 0, 2)
    journal.go_on({})
    assert journal.of("5 rl").take("a") == [(0, 2)]
    assert journal.take("a") == ()


def test_a_disk_that_is_full_stops_the_run(tmp_path: Path) -> None:
    journal = EpisodeJournal(tmp_path / "gone")
    with pytest.raises(RunFailed):
        journal.add("a", 0, 1)
