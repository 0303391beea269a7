"""Graders and programs on the machines of a cluster: the scores of one process, also when processes are killed."""

import importlib.util
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cluster._graders import _python, check_grader, tiers
from posttrain.cluster._grading import ClusterGraders, grading_on
from posttrain.cluster._members import Member
from posttrain.cluster._session import Processes
from posttrain.cluster.ray import Ray
from posttrain.engines.native import Native
from posttrain.errors import RunFailed, UserError
from posttrain.grading.workers import runner
from posttrain.policies.folder import new_folder
from posttrain.runs.context import RunContext
from posttrain.sandbox import Job, Limits, Pool, Result, find_tier, pool, python_job
from posttrain.sandbox.tiers import TIERS
from tests.cluster.running import on, run, scored, small

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
TIER = find_tier().tier
needs_sandbox = pytest.mark.skipif(TIER == "none", reason="this machine has no sandbox")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    with opened(Ray(graders=2, cpus=0.5, timeout=60.0), Native(slots=16), 0) as session:
        yield session


@needs_ray
@pytest.mark.slow
def test_a_reward_scored_elsewhere_is_that_of_one_process_also_when_a_grader_is_killed(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = new_folder(tmp_path / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)
    recipe = scored(small("grpo", tiny), tmp_path, steps=5)
    with monkeypatch.context() as local:
        local.setattr(runner, "elsewhere", None)
        alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    before, asked, calls = ClusterGraders.grade, list[int](), list[int]()

    async def grade(self: ClusterGraders, *given: Any) -> Any:
        asked.append(1)
        found = await before(self, *given)
        assert found is not None
        return found

    def server(context: RunContext, policy: Any) -> Any:
        calls.append(1)
        if len(calls) == 12:
            os.kill(session.graders[0].pid, signal.SIGKILL)
        return serve(context, policy)

    serve = RunContext.server
    monkeypatch.setattr(ClusterGraders, "grade", grade)
    monkeypatch.setattr(RunContext, "server", server)
    assert run(recipe, tmp_path / "elsewhere") == alone
    assert len(asked) > 20
    assert "grader 0" in (tmp_path / "elsewhere" / "grpo-1" / "events.jsonl").read_text()


@needs_ray
@needs_sandbox
@pytest.mark.slow
def test_programs_run_in_the_sandboxes_of_strong_enough_machines(session: Any, tmp_path: Path) -> None:
    node = session.graders[0].node
    assert tiers([node])[node] in TIERS
    weakest = max((TIER, *(member.tier for member in session.graders)), key=TIERS.index)  # a busy machine may find less
    if weakest == "none":
        pytest.skip("a process found no sandbox")
    jobs = [python_job(b"import sys; print(int(sys.stdin.read()) * 2)", stdin=b"%d" % n) for n in range(4)]
    opened = Pool(weakest, 2)
    asked: list[Job] = []

    class Counted(ClusterGraders):
        def run(self, tier: Any, job: Job, limits: Limits) -> Result | None:
            found = super().run(tier, job, limits)
            if found is not None:
                asked.append(job)
            return found

    before = pool.elsewhere
    pool.elsewhere = Counted(session)
    try:
        assert [opened.run(job).stdout for job in jobs] == [b"0\n", b"2\n", b"4\n", b"6\n"]
        assert asked == jobs
        own = replace(jobs[3], folders={**jobs[3].folders, "/data": str(tmp_path)})
        assert opened.run(own).stdout == b"6\n" and asked == jobs, "its folder is here"
        for member in session.graders:
            member.tier = "none"  # as on a machine without a sandbox
        assert opened.run(jobs[3]).stdout == b"6\n" and asked == jobs, "it ran here"
    finally:
        pool.elsewhere = before
        for member in session.graders:
            member.tier = weakest
        opened.close()


def test_another_python_is_refused_and_a_weaker_sandbox_noted() -> None:
    member = Member(None, 3)
    about = {"node": "far:1", "python": "/far/python", "tier": "none"}
    with pytest.raises(UserError, match=r"node far has its Python at /far/python, .* at the same place everywhere"):
        check_grader(about, member)
    note = check_grader({**about, "python": _python()}, member)
    assert member.tier == "none" and ("sandbox is of tier 'none' only" in note) == (TIER != "none")


def test_without_graders_nothing_changes_and_two_runs_cannot_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "elsewhere", None)
    monkeypatch.setattr(pool, "elsewhere", None)
    session = Processes(Ray(), Native(), 0, tmp_path)
    with grading_on(session):
        assert runner.elsewhere is None and pool.elsewhere is None
    session.graders = [Member(None, 0)]
    with grading_on(session):
        assert runner.elsewhere is not None and pool.elsewhere is not None
        with pytest.raises(RunFailed, match="another run of this process"), grading_on(session):
            pass
    assert runner.elsewhere is None and pool.elsewhere is None
