"""What is asked of the processes of a run on Ray, and what is remembered of each."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from posttrain.cluster._weights import Version


class Settings(Protocol):
    """What `posttrain.cluster.ray.Ray` states of the processes."""

    @property
    def samplers(self) -> int: ...
    @property
    def learners(self) -> int: ...
    @property
    def scorers(self) -> int: ...
    @property
    def graders(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def cpus(self) -> float: ...
    @property
    def timeout(self) -> float: ...
    @property
    def store_mb(self) -> int: ...
    @property
    def sharding(self) -> str: ...
    @property
    def processes(self) -> int: ...


@dataclass(eq=False)
class Member:
    """An actor, and what it has."""

    actor: Any
    number: int
    has: dict[str, str] = field(default_factory=dict)
    """The version of each model's weights, by name."""
    due: dict[str, tuple["Version", str]] = field(default_factory=dict)
    """Versions in the memory of this machine that it takes with its next request, and where, by name of the model."""
    bases: dict[str, str] = field(default_factory=dict)
    """The digest of what is frozen of each, by name."""
    load: int = 0
    """Completions that are asked of it and not there yet."""
    pid: int = 0
    node: str = ""
    """Ray's id of its machine."""
    tier: str = ""
    """Of isolation of its machine's sandbox; of those that grade only."""
    is_near: bool = True
    """Whether it is on the machine of the run's own process."""
    replaced: int = 0
    failed: int = 0
    """Consecutive times that it had a place, and a process did not start there."""
    earliest: float = 0.0
    """When it may be started again, by this process's clock."""
    place: Any = None
    """The placement group that it is in; None for one that was there from the start."""
    seconds: float = 0.0
    """Waited for its answers, summed over requests."""
    answers: int = 0
    is_slow: bool = False
    """Whether a note has named it."""


def draining() -> set[str]:
    """The ids of the machines that are about to leave: `ray drain-node`, or a notice of preemption."""
    import ray._private.state

    state: Any = ray._private.state.state  # ray.nodes() does not say it
    return set(state.get_draining_nodes())
