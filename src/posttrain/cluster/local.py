"""This process alone: it samples and learns in turns. No process is started."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from posttrain.cluster import Cluster, Result
from posttrain.component import frozen
from posttrain.engines import Elsewhere, Engine, Server, Timed

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner, Workers


class Here:
    """The session of one process."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, self._seed = engine, seed
        self._elsewhere: dict[int, Elsewhere] = {}
        self._timed: dict[int, Timed] = {}

    def serve(self, policy: "Policy") -> Server:
        """The engine, in this process."""
        server = self._engine.serve(policy, self._seed)
        if isinstance(server, Elsewhere):
            self._elsewhere[id(policy)] = server
        if isinstance(server, Timed):
            self._timed[id(policy)] = server
        return server

    def workers(self, learner: "Learner") -> "Workers":
        """This process."""
        from posttrain.training.learner import InProcess

        return InProcess()

    def beside(self, policies: "Collection[Policy]", work: Callable[[], Result]) -> Callable[[], Result]:
        """Do it at once."""
        found = work()
        return lambda: found

    def keep(self, policies: "Collection[Policy]") -> None:
        """Forget the servers of all others."""
        kept = {id(policy) for policy in policies}
        self._elsewhere = {key: server for key, server in self._elsewhere.items() if key in kept}
        self._timed = {key: server for key, server in self._timed.items() if key in kept}

    def take_notes(self) -> list[str]:
        """Of servers elsewhere."""
        return [note for server in self._elsewhere.values() for note in server.take_notes()]

    def take_timing(self) -> Mapping[str, float]:
        """Of servers elsewhere, and of prefixes that stay here."""
        timing = dict[str, float]()
        for server in self._timed.values():
            timing |= {name: timing.get(name, 0.0) + value for name, value in server.take_timing().items()}
        return timing


@frozen
class Local(Cluster):
    """No further process."""

    @contextmanager
    def open(self, engine: Engine, seed: int) -> Iterator[Here]:
        """Nothing is started."""
        yield Here(engine, seed)
