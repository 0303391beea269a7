"""Where the processes of a run are: its samplers and its learners.

Contract: the place of a computation changes no number. A run on any cluster, with any number of samplers and learners,
gives the metrics, rollouts and weights of the same recipe on ``local``, bit for bit.

A cluster is asked twice: what samples from a policy (`Session.serve`), and what computes the gradients of a learner's
slices (`Session.workers`). Stages know neither; they ask their context for samplers, and learners for gradients.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from posttrain.component import Component
from posttrain.engines import Engine, Server

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner, Workers

SHARED = ("checking", "dispatch", "planning")
Result = TypeVar("Result")


class Session(Protocol):
    """The processes of one run, from its start to its end."""

    def serve(self, policy: "Policy") -> Server:
        """What samples from a policy, always with its weights as they are at the first request of several."""
        ...

    def workers(self, learner: "Learner") -> "Workers":
        """What computes the gradients of a learner."""
        ...

    def beside(self, policies: "Collection[Policy]", work: Callable[[], Result]) -> Callable[[], Result]:
        """Begin work that samples these policies with the weights that they have now, whatever the learner does
        meanwhile; returns what waits for its result.
        """
        ...

    def keep(self, policies: "Collection[Policy]") -> None:
        """Forget all other policies."""
        ...

    def take_notes(self) -> list[str]:
        """What a person should know of what happened since the last call: a process that was replaced, for example."""
        ...

    def take_timing(self) -> Mapping[str, float]:
        """Bytes and seconds of changes of weights since the last call."""
        ...


class Cluster(Component):
    """The processes that a recipe requests."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that its settings name."""
        return frozenset()

    def check(self, device: str) -> None:
        """Raise `UserError` for what cannot be had here, before anything is started or recorded.

        `device` is the kind of device of the run: ``cpu`` or ``cuda``.
        """

    def open(self, engine: Engine, seed: int) -> AbstractContextManager[Session]:
        """Start the processes; all have ended when it is closed, however that comes."""
        raise NotImplementedError
