"""What runs in the processes of a cluster that score: graders in workers, and programs in sandboxes."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.cluster._members import Member
from posttrain.errors import UserError
from posttrain.grading.workers import Limits, Outcome, Runner
from posttrain.grading.workers.wire import frame
from posttrain.sandbox import Job, Result, Tier, find_tier, open_pool
from posttrain.sandbox import Limits as JobLimits
from posttrain.sandbox.tiers import TIERS


class Graders:
    """In a process of the cluster: the warm workers and the sandboxes of its machine."""

    def __init__(self, threads: int, node: str) -> None:
        from posttrain.cluster._actors import node_of

        self._is_near = node == node_of()
        self._runners: dict[bytes, Runner] = {}

    def about(self) -> dict[str, Any]:
        """What must be the same everywhere, where this is, and its sandbox."""
        from posttrain.cluster._actors import about

        return {**about(self._is_near), "python": _python(), "tier": find_tier().tier}

    async def grade(
        self, orders: dict[str, Any], preload: tuple[str, ...], limits: tuple[Limits, Limits], argument: Any
    ) -> Outcome:
        """The outcome of one call of a grader."""
        key = frame([orders, list(preload), str(limits[0])])
        if key not in self._runners:
            self._runners[key] = Runner.of(orders, preload, limits[0])
        return await self._runners[key].call(argument, limits[1])

    async def run(self, tier: Tier, job: Job, limits: JobLimits) -> Result:
        """The result of one program."""
        return await open_pool(tier).result(job, limits)


def _python() -> str:
    return sys.executable if sys.prefix == sys.base_prefix else f"{sys.executable} (of {sys.base_prefix})"


def tiers(nodes: Sequence[str]) -> dict[str, Tier]:
    """The tier of isolation of the sandbox of each node, by Ray's id."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def found() -> Tier:
        return find_tier().tier

    remote: Any = ray.remote(num_cpus=0)(found)
    asked = [
        remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote() for node in nodes
    ]
    return dict(zip(nodes, ray.get(asked), strict=True))


def holds(member: Member, tier: Tier) -> bool:
    """Whether the sandbox of a machine is of that tier or a stronger one."""
    return TIERS.index(member.tier) <= TIERS.index(tier)


def check_grader(about: Mapping[str, Any], member: Member) -> str:
    """Take the tier of a machine; what to note about it. Raises `UserError` for another Python."""
    if about["python"] != _python():
        raise UserError(
            f"node {about['node'].partition(':')[0]} has its Python at {about['python']}, and this process at "
            f"{_python()}: graders and programs are started by that path; install it at the same place everywhere"
        )
    member.tier = about["tier"]
    if holds(member, find_tier().tier):
        return ""
    return (
        f"grader {member.number} is on a machine whose sandbox is of tier '{member.tier}' only: no programs that a "
        "model wrote are run there"
    )
