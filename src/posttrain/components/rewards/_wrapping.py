"""What a reward that is made of other rewards passes on of them."""

from collections.abc import Mapping, Sequence

from posttrain.components.rewards import Reward
from posttrain.types import Task


class Wrapping(Reward):
    """A reward that is computed from the scores of others."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other rewards by name; the first decides what is correct."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Prepare the others."""
        for part in self.wrapped.values():
            part.prepare()

    def check(self, tasks: Sequence[Task]) -> None:
        """Check the others."""
        for part in self.wrapped.values():
            part.check(tasks)

    @property
    def roles(self) -> frozenset[str]:
        """Those of the others."""
        return frozenset().union(*(part.roles for part in self.wrapped.values()))

    @property
    def runs(self) -> str:
        """What the first of them that runs programs runs."""
        return next((part.runs for part in self.wrapped.values() if part.runs), "")

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of the others."""
        return {file: digest for part in self.wrapped.values() for file, digest in part.fingerprint.items()}

    @property
    def needs_answer(self) -> bool:
        """Whether any of the others does."""
        return any(part.needs_answer for part in self.wrapped.values())
