"""This process alone: it samples and learns in turns. Nothing is started, and nothing is sent."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from posttrain.cluster import Cluster, Result
from posttrain.component import frozen
from posttrain.engines import Engine, Server

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner, Workers


class Here:
    """The session of one process."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, self._seed = engine, seed

    def serve(self, policy: "Policy") -> Server:
        """The engine, in this process."""
        return self._engine.serve(policy, self._seed)

    def workers(self, learner: "Learner") -> "Workers":
        """This process."""
        from posttrain.training.learner import InProcess

        return InProcess()

    def beside(self, policies: "Collection[Policy]", work: Callable[[], Result]) -> Callable[[], Result]:
        """Do it at once."""
        found = work()
        return lambda: found

    def keep(self, policies: "Collection[Policy]") -> None:
        """Nothing is kept here."""

    def take_notes(self) -> list[str]:
        """None."""
        return []

    def take_timing(self) -> Mapping[str, float]:
        """None."""
        return {}


@frozen
class Local(Cluster):
    """No further process."""

    @contextmanager
    def open(self, engine: Engine, seed: int) -> Iterator[Here]:
        """Nothing is started."""
        yield Here(engine, seed)
