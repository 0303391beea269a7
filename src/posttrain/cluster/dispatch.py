"""How the arguments of one call are dealt to a group of processes, and their results put together.

Source: HybridFlow (Sheng et al. 2024, arXiv:2409.19256) and the dispatch modes of its release (volcengine/verl,
single_controller/base/decorator.py, protocol.py). A caller sees one call; which process does what is the mode's:

    rank_zero    the first one alone
    one_to_all   the same arguments to all, all results
    all_to_all   one argument for each
    split        a list in equal parts, in order; results joined in order
    mesh         processes of one data-parallel rank get the same part; one of them is asked for its result

Lists whose length the parts do not divide are an error, or padded: ``last`` repeats the last item, ``cycle`` begins
again with the first ones; surplus results are cut off. Padding is for forward passes: in a loss or a mean the repeated
items would count.

An argument may be the result of another call that nobody has opened (`Later`); it is handed on as it is, in parts
where the other call was dealt in the same ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from posttrain.errors import UserError

Mode = Literal["rank_zero", "one_to_all", "all_to_all", "split", "mesh"]
Padding = Literal["none", "last", "cycle"]


class Member(Protocol):
    """A process of a group."""

    def call(self, method: str, argument: Any) -> Any:
        """Begin a call; returns what `Group.wait` opens. `argument` may be of that kind too."""
        ...


@dataclass(frozen=True)
class Later:
    """The result of a call, part by part, that is not opened yet."""

    parts: Sequence[Any]
    """As `Member.call` returned them, one for each data-parallel rank."""
    join: Callable[[Sequence[Any]], Any]
    length: int | None = None
    """Items in all; None where it is no list."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes that are called as one."""

    members: Sequence[Member]
    wait: Callable[[Sequence[Any]], Sequence[Any]]
    """Opens what `Member.call` returned."""
    copies: int = 1
    """Consecutive processes that make up one data-parallel rank, for ``mesh``."""

    def begin(self, method: str, argument: Any, mode: Mode, padding: Padding = "none") -> Later:
        """Begin a call in all processes that the mode names."""
        if mode == "rank_zero":
            return Later([self.members[0].call(method, argument)], lambda parts: parts[0])
        if mode == "one_to_all":
            return Later([member.call(method, argument) for member in self.members], list)
        if mode == "all_to_all":
            self._check(len(argument), len(self.members), "all_to_all takes one argument for each process")
            given = zip(self.members, argument, strict=True)
            return Later([member.call(method, own) for member, own in given], list)
        copies = self.copies if mode == "mesh" else 1
        return self._in_parts(method, argument, padding, copies)

    def call(self, method: str, argument: Any, mode: Mode, padding: Padding = "none") -> Any:
        """The result of a call."""
        return self.open(self.begin(method, argument, mode, padding))

    def open(self, later: Later) -> Any:
        """Wait for a result."""
        return later.join(self.wait(later.parts))

    def _in_parts(self, method: str, argument: Any, padding: Padding, copies: int) -> Later:
        count = len(self.members) // copies
        self._check(count * copies, len(self.members), f"a mesh of {copies} processes a part")
        if isinstance(argument, Later):
            self._check(len(argument.parts), count, "a result that is handed on has as many parts as the group")
            parts, length = list(argument.parts), argument.length
        else:
            length = len(argument)
            parts = split(argument, count, padding)
        begun = []
        for i, part in enumerate(parts):
            first, *others = self.members[i * copies : (i + 1) * copies]
            begun.append(first.call(method, part))
            for other in others:
                other.call(method, part)

        def join(results: Sequence[Any]) -> list[Any]:
            return [item for own in results for item in own][:length]

        return Later(begun, join, length)

    @staticmethod
    def _check(got: int, wanted: int, why: str) -> None:
        if got != wanted:
            raise UserError(f"{why}: got {got}, and there are {wanted}")


def split(items: Sequence[Any], parts: int, padding: Padding) -> list[list[Any]]:
    """Equal parts, in order. Raises `UserError` for a length that does not divide, without padding."""
    missing = -len(items) % parts
    if missing and padding == "none":
        raise UserError(
            f"{len(items)} items cannot be dealt to {parts} processes in equal parts; for a forward pass give a padding"
        )
    if missing and not items:
        raise UserError("nothing to deal, and nothing to pad it with")
    padded = list(items)
    if missing:
        more = [items[-1]] * missing if padding == "last" else [items[i % len(items)] for i in range(missing)]
        padded += more
    size = len(padded) // parts
    return [padded[i * size : (i + 1) * size] for i in range(parts)]
