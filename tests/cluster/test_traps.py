"""Traps of Ray, torch and processes, each with the test that fails when one falls into it again; and what is left."""

import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from posttrain.cluster._gang import join
from posttrain.cluster._ports import free_port, listening, own_address
from posttrain.cluster._processes import marked
from posttrain.cluster._samplers import ClusterServer
from posttrain.cluster.ray import Ray
from posttrain.component.user_code import allowing
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from tests.cluster.running import SCORE, on, run, scored, small
from tests.runs.processes import GO, command, steps_done, wait

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture(scope="module")
def opened_session() -> Iterator[tuple[Any, list[str]]]:
    """With what it had to say at its start."""
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    with opened(Ray(samplers=2, learners=2, cpus=0.5, timeout=60.0), Native(slots=16), 0) as session:
        yield session, session.take_notes()


@pytest.fixture
def session(opened_session: tuple[Any, list[str]]) -> Any:
    return opened_session[0]


def of(session: Any) -> list[int]:
    """The processes of its Ray, and this one."""
    return [os.getpid(), *(pid for pid, folder in marked().items() if folder == str(session.folder))]


def test_a_store_of_torch_listens_on_all_addresses_and_a_group_on_one_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import distributed

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    before = set(listening([os.getpid()]))
    group = join(str(tmp_path / "place"), 0, 1, 10.0)
    assert not any(port.is_open for port in set(listening([os.getpid()])) - before)
    del group
    port, dist = free_port("127.0.0.1"), cast(Any, distributed)
    store = dist.TCPStore("127.0.0.1", port, 1, is_master=True, timeout=timedelta(seconds=10))
    (own,) = [own for own in listening([os.getpid()]) if own.number == port]
    assert own.is_open, "asked for 127.0.0.1"
    del store


@needs_ray
@pytest.mark.slow
def test_the_ports_that_others_reach_are_named_at_the_start(opened_session: tuple[Any, list[str]]) -> None:
    """Ray listens on all addresses, whatever it is asked."""
    session, notes = opened_session
    found = {port.number for port in listening(of(session)) if port.is_open}
    assert found
    if own_address() == "127.0.0.1":
        return  # there is no other address to reach it by
    (note,) = [note for note in notes if note.startswith("ports of this run that answer from another address: ")]
    named = {int(word) for word in note.partition(": ")[2].partition(";")[0].split(", ")}
    assert found <= named


@needs_ray
@pytest.mark.slow
def test_processes_have_the_threads_of_the_recipe(session: Any) -> None:
    """Ray sets OMP_NUM_THREADS in its workers to the CPUs that it set aside, here to 1."""
    import ray

    torch.set_num_threads(2)
    try:
        member = session._start("Samplers", 7)
        assert ray.get(member.actor.about.remote(), timeout=120)["threads"] == 2
        ray.kill(member.actor)
    finally:
        torch.set_num_threads(1)


@needs_ray
@pytest.mark.slow
def test_the_end_of_one_ray_is_not_that_of_another(session: Any, tmp_path: Path) -> None:
    """`ray stop` would end every Ray of this machine."""
    import ray

    shared = set(os.listdir("/dev/shm"))
    done = wait(command(tmp_path, "cluster", "check", "--json"))
    assert json.loads(done[done.index("{") :])["left"] == [], "and nothing is left of it"
    assert not unused(set(os.listdir("/dev/shm")) - shared)
    there = of(session)
    assert {member.pid for member in session.all} <= set(there)
    for member in session.all:
        assert ray.get(member.actor.about.remote(), timeout=60)["pid"] == member.pid


@needs_ray
@pytest.mark.slow
def test_another_version_of_the_package_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.cluster._actors.versions", lambda: {"posttrain": "0.0.9", "torch": "1.0"})
    with pytest.raises(UserError, match=r"and this process \{'posttrain': '0\.0\.9'.*install the same versions"):
        session._check(session.samplers[0])


@needs_ray
@pytest.mark.slow
def test_a_judge_that_is_killed_is_asked_again(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has another role than the policy samples in the same processes."""
    recipe = small("think_rm", tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    before, asked = ClusterServer._asked, list[str]()

    async def ask(server: ClusterServer, name: str, *arguments: Any) -> Any:
        if name.startswith("judge"):
            asked.append(name)
            if len(asked) == 3:
                os.kill(session.samplers[1].pid, signal.SIGKILL)
        return await before(server, name, *arguments)

    monkeypatch.setattr(ClusterServer, "_asked", ask)
    assert run(recipe, tmp_path / "ray") == alone
    assert len(asked) >= 3
    assert "sampler 1" in (tmp_path / "ray" / "think_rm-1" / "events.jsonl").read_text()


@needs_ray
@pytest.mark.slow
def test_a_stream_whose_processes_are_killed_leaves_a_journal_that_gives_its_weights(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    recipe = replace(recipe, schedule=Streaming(eta=2, piece=2, order="clock"))
    before, asked = ClusterServer._asked, list[str]()

    async def ask(server: ClusterServer, name: str, *arguments: Any) -> Any:
        asked.append(name)
        if len(asked) in (40, 60):
            os.kill((session.samplers if len(asked) == 40 else session.learners)[0].pid, signal.SIGKILL)
        return await before(server, name, *arguments)

    with monkeypatch.context() as patched:
        on(session, patched)
        patched.setattr(ClusterServer, "_asked", ask)
        folder, _ = start(recipe, tmp_path / "ray", LiveView(lines=True))
    events = (folder / "events.jsonl").read_text()
    assert "sampler 0" in events and "learner 1" in events
    with allowing(trust=True):
        new, _ = replay(folder, tmp_path / "again", LiveView(lines=True))
    assert different_files(folder / "model", new / "model") == []


FAILS = """
def score(completion, task):
    raise SystemError("as broken as can be")
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("error", 3), ("interrupt", 130)])
def test_nothing_is_left_after_an_error_and_an_interrupt(how: str, code: int, tiny: Path, tmp_path: Path) -> None:
    """No process, no temporary folder, no memory that is shared under a name."""
    settings = [f"model={tiny}", "steps=3", "prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=4"]
    settings += ["learner.micro_batch_tokens=64", "reward=mine.py:score", "tasks.size=40", "evaluation.holdout=2"]
    cluster = ["cluster=ray", "cluster.samplers=2", "cluster.learners=2", "cluster.cpus=0.5", "threads=1"]
    (tmp_path / "mine.py").write_text(SCORE if how != "error" else FAILS)
    shared = set(os.listdir("/dev/shm"))
    process = command(tmp_path, "run", "grpo", *settings, *cluster, held_at=1 if how == "interrupt" else None)
    own, folder = set[str](), tmp_path / "runs" / "grpo-1"
    while process.poll() is None:
        own |= {mark for mark in set(marked().values()) if driver_of(mark, process.pid)}
        if how == "interrupt" and steps_done(folder) == 1 and not (tmp_path / GO).exists():
            process.send_signal(signal.SIGINT)
            (tmp_path / GO).touch()
        time.sleep(0.1)
    output = wait(process)
    assert process.returncode == code, output
    assert own, "its processes were seen"
    assert not own & set(marked().values())
    assert not any(Path(mark).exists() for mark in own)
    assert not unused(set(os.listdir("/dev/shm")) - shared)


def driver_of(mark: str, pid: int) -> bool:
    """Whether a cluster's folder is held open by a process."""
    try:
        return any(os.path.realpath(link) == mark for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended
        return False


def unused(names: set[str]) -> set[str]:
    """The files of shared memory that no process has, however often it is asked: other tests make and map their own."""
    for _ in range(20):
        used = ""
        for maps in Path("/proc").glob("[0-9]*/maps"):
            try:
                used += maps.read_text()
            except OSError:
                continue
        names = {name for name in names if f"/dev/shm/{name}" not in used and Path(f"/dev/shm/{name}").exists()}
        if not names:
            break
        time.sleep(0.5)
    return names
