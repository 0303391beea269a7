"""Scoring on the machines of a cluster: the side of the run's own process.

A call goes to the process with the fewest in progress. When one ends, its calls are asked again; when there is none, or
none on a machine whose sandbox is strong enough, they are done here. Limits are per call, wherever it is done.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.cluster._graders import holds
from posttrain.cluster._members import Member
from posttrain.cluster._session import Processes
from posttrain.errors import RunFailed
from posttrain.grading.workers import Limits, Outcome, runner
from posttrain.sandbox import Job, Result, Tier, pool
from posttrain.sandbox import Limits as JobLimits


class ClusterGraders:
    """In the run's own process: gives calls to the others."""

    def __init__(self, session: Processes) -> None:
        self._session = session

    async def grade(
        self, orders: Mapping[str, Any], preload: tuple[str, ...], limits: tuple[Limits, Limits], argument: Any
    ) -> Outcome | None:
        """See `posttrain.grading.workers.runner.Elsewhere`."""
        while (member := self._chosen(lambda _: True)) is not None:
            with self._asked(member):
                found: Outcome = await member.actor.grade.remote(dict(orders), preload, limits, argument)
                return found
        return None

    def run(self, tier: Tier, job: Job, limits: JobLimits) -> Result | None:
        """See `posttrain.sandbox.pool.Elsewhere`. Jobs with folders stay here, but for those of Python."""
        import ray

        if not set(job.folders.values()) <= {sys.base_prefix, str(Path(sys.base_prefix).resolve())}:
            return None
        while (member := self._chosen(lambda own: holds(own, tier))) is not None:
            with self._asked(member):
                found: Result = ray.get(member.actor.run.remote(tier, job, limits))
                return found
        return None

    def _chosen(self, fits: Callable[[Member], bool]) -> Member | None:
        with self._session.counting:
            members = [member for member in self._session.graders if fits(member)]
            if not members or self._session.closing:
                return None
            member = min(members, key=lambda own: (own.load, own.number))
            member.load += 1
            return member

    @contextmanager
    def _asked(self, member: Member) -> Iterator[None]:
        """Around a call of a process; one that has ended is replaced, and the call is to be asked again."""
        import ray

        try:
            yield
        except ray.exceptions.RayError as error:
            self._lost(member, error)
        finally:
            with self._session.counting:
                member.load -= 1

    def _lost(self, member: Member, error: Exception) -> None:
        """Replace it where it has ended. Raises other errors as they are."""
        import ray

        if isinstance(error, ray.exceptions.RayTaskError):
            raise getattr(error, "cause", None) or error
        session = self._session
        with session.counting:
            if member in session.graders and isinstance(error, ray.exceptions.RayActorError):
                session.replace(session.graders, member, str(error).splitlines()[0])


@contextmanager
def grading_on(session: Processes) -> Iterator[None]:
    """Inside, graders and programs run in the processes of a cluster, if it has some for them."""
    if not session.graders:
        yield
        return
    if runner.elsewhere is not None:
        raise RunFailed("another run of this process has graders on a cluster; have it end first")
    runner.elsewhere = pool.elsewhere = ClusterGraders(session)
    try:
        yield
    finally:
        runner.elsewhere = pool.elsewhere = None
