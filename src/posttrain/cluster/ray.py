"""Processes on Ray: a Ray of the run's own, which ends with it, or one that is there.

Samplers are actors, each with a copy of the models; requests go to the shortest queue. Learners compute gradients of
the micro-batches of an optimizer step and add them up in the order of the micro-batches; the first one is the run's own
process, which has the optimizer. Numbers are those of ``local``, bit for bit.

With ``sharding=fsdp`` weights are cut by rows (FSDP2 of torch), and gradients, masters and moments are shared out; the
first learner has whole weights besides, for samplers and checkpoints.

Source: HybridFlow (arXiv:2409.19256; volcengine/verl), one program whose calls are dealt to groups of processes by a
mode (`posttrain.cluster.dispatch`: split in order, with both paddings for forward passes, to one, to all, on a mesh;
results are handed on unopened), and its rule of which rank holds what for training and for generation
(`posttrain.cluster.planning.shards`). A search for the devices of each call, that of ReaLHF (arXiv:2406.14088), is a
command, and `posttrain.cluster.placed` executes its plans:

    posttrain plan ppo gpus=16:h100
    posttrain cluster plan PROFILE.json

Differs: roles that are trained together learn in the same group of processes, and those that are not may have one of
their own (`scorers`). Learners are sharded by rows and gathered for samplers, which have whole weights; tensor and
pipeline parallelism are planned and not executed, and resharding between them is in tests alone (four processes, gloo).

Measured here (docs/experiments.md): seven sequences dealt to 2, 3 and 4 workers with both paddings, five seeds, are
those of one to the bit, 35 of 35 in each case; what a rank receives, counted cell by cell in five layouts, is the
formula's: 3/8 of the model from 2 x 4 x 2 to 1 x 2, where gathering it in a replica brings 7/8. The search finds the
best of all plans in 50 of 50 random tables.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.cluster import Cluster
from posttrain.cluster._checks import check_processes
from posttrain.component import frozen
from posttrain.engines import Engine

if TYPE_CHECKING:
    from posttrain.cluster._opened import Session


ROWS: Final = (264,)


@frozen
class Ray(Cluster):
    """Samplers and learners in processes of their own."""

    samplers: PositiveInt = 1
    """Processes that sample."""
    learners: PositiveInt = 1
    """Processes that learn, the run's own included. A step has as much to deal as it has micro-batches
    (``learner.micro_batch_tokens``)."""
    scorers: NonNegativeInt = 0
    """Processes for forward passes of models that are not trained (references, teachers), which learners then do not
    have; 0 leaves them to the learners, in turns."""
    graders: NonNegativeInt = 0
    """Processes, spread over the machines, whose workers and sandboxes score completions; 0 scores on the run's own
    machine alone."""
    address: str = ""
    """``host:port`` of a Ray that is there, or ``auto``; empty starts one on this machine."""
    cpus: PositiveFloat = 1.0
    """CPUs that Ray sets aside for each process; below 1, several share one."""
    timeout: PositiveFloat = 120.0
    """Seconds after which a learner that does not answer is killed and replaced; more than a micro-batch takes."""
    sharding: Literal["none", "fsdp"] = "none"
    """Whether each learner has a part of weights, gradients and optimizer only (``fsdp``), or learners have whole
    models and the first one the optimizer (``none``)."""
    store_mb: PositiveInt = 256
    """Limit in MiB of the object store, by which weights go to other machines, and models to sharded learners. Larger
    ones are refused: Ray would write the rest to the disk."""

    @property
    def processes(self) -> int:
        """Actors that are started."""
        return self.samplers + self.learners - 1 + self.scorers + self.graders

    def check(self, device: str) -> None:
        """Raise `UserError` without Ray, on a GPU, and for more processes than this machine can run."""
        settings = (
            f"cluster.samplers={self.samplers}, cluster.learners={self.learners}, cluster.scorers={self.scorers} and "
            f"cluster.graders={self.graders}"
        )
        check_processes(self.kind, device, self.address, self.processes * self.cpus, settings)

    @contextmanager
    def open(self, engine: Engine, seed: int) -> "Iterator[Session]":
        """Start or join Ray, and start the actors."""
        from posttrain.cluster._opened import opened

        with opened(self, engine, seed) as session:
            yield session
