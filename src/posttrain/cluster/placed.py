"""Processes on Ray, each with the calls that a plan puts there: generate, score, train, by role.

    posttrain cluster profile ppo --processes 2 --out profile.json   # seconds of each call on each mesh, measured
    posttrain cluster plan profile.json --out plan.yaml              # the best placement of them
    posttrain run plan.yaml                                          # executes it

``cluster.calls`` has the processes of each call, for example ``{train policy: [0], train critic: [1]}``. A process has
copies of the models of its calls alone. A call on several is dealt to them: completions to the shortest queue, forward
passes in equal parts, micro-batches of a gradient one by one. Calls that need nothing of one another (two scores, the
updates of two roles) go on at the same time where they have no process in common. The run's own process chooses tasks,
scores answers, and updates the weights, which go to the processes of the next call. Numbers are those of ``local``, bit
for bit.

With ``sharding=fsdp`` a call on several processes has its model in parts there (`posttrain.cluster.ray`): a role is
trained and updated by its own processes, each with its rows, gradients, masters and moments, and what scores has rows.
Whole weights come to the run's own process after an update, for samplers and checkpoints.

Source: ReaLHF (Mei et al. 2024, arXiv:2406.14088; openpsi-project/ReaLHF, csrc/search): plans of calls on meshes, the
search for the best one (`posttrain.cluster.planning`), and weights that are reallocated between the calls of a model.

Differs: a layout is data parallel, sharded or not; tensor and pipeline parallelism are planned and not executed.
Weights of an update are in the run's own process, so that a reallocation is from there. Calls of the next step wait for
all updates of this one. With ``schedule=lagged`` nothing is sampled beside the learner.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.cluster import Cluster
from posttrain.cluster._checks import check_processes
from posttrain.component import frozen
from posttrain.engines import Engine
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.cluster._opened import Session

CALLS: Final = ("generate", "score", "train")


@frozen
class Placed(Cluster):
    """Calls of models on named processes."""

    processes: PositiveInt = 2
    """Processes beside the run's own, numbered from 0."""
    calls: Mapping[str, tuple[Annotated[int, Field(ge=0)], ...]] = field(default_factory=dict)
    """The processes of each call, which is ``generate``, ``score`` or ``train`` and a role; all for one that is not
    named."""
    address: str = ""
    """``host:port`` of a Ray that is there, or ``auto``; empty starts one on this machine."""
    cpus: PositiveFloat = 1.0
    """CPUs that Ray sets aside for each process; below 1, several share one."""
    timeout: PositiveFloat = 120.0
    """Seconds after which a process that does not answer is killed and replaced; more than a call takes."""
    sharding: Literal["none", "fsdp"] = "none"
    """Whether the processes of a call each have a part of its model (``fsdp``): of weights where they score, of
    weights, gradients and optimizer where they train. A call that has one process has a whole model, as has what
    generates."""
    store_mb: PositiveInt = 256
    """Limit in MiB of the object store, by which weights go to other machines, and models to sharded learners. Larger
    ones are refused: Ray would write the rest to the disk."""

    def __post_init__(self) -> None:
        for call, numbers in self.calls.items():
            kind, _, role = call.partition(" ")
            if kind not in CALLS or not role:
                known = ", ".join(CALLS)
                raise UserError(f"cluster.calls: '{call}' is no call; write {known} and a role: train policy")
            if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= self.processes:
                raise UserError(
                    f"cluster.calls: {call} is on {list(numbers)}; name processes once each, from 0 to "
                    f"{self.processes - 1}, or raise cluster.processes"
                )

    @property
    def roles(self) -> frozenset[str]:
        """Those of the calls."""
        return frozenset(call.partition(" ")[2] for call in self.calls)

    @property
    def samplers(self) -> int:
        """All processes."""
        return self.processes

    @property
    def learners(self) -> int:
        """The run's own process, which updates what is whole."""
        return 1

    @property
    def graders(self) -> int:
        """Graders are in the run's own process."""
        return 0

    @property
    def scorers(self) -> int:
        """None that does nothing else."""
        return 0

    def check(self, device: str) -> None:
        """Raise `UserError` without Ray, on a GPU, and for more processes than this machine can run."""
        asked = self.processes * self.cpus
        check_processes(self.kind, device, self.address, asked, f"cluster.processes={self.processes}")

    @contextmanager
    def open(self, engine: Engine, seed: int) -> "Iterator[Session]":
        """Start or join Ray, and start the actors."""
        from posttrain.cluster._opened import opened
        from posttrain.cluster._placed import PlacedSession

        with opened(self, engine, seed, PlacedSession) as session:
            yield session
