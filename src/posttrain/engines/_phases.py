"""Weights to servers of other programs in phases, over HTTP and a process group beside it: order and pieces.

All servers are paused, join a group (once), begin, get the pieces, each beside its broadcast, end, and go on. The
requests are those of each program: `Routes`.

The trainer is rank 0, the server of place i has rank i + 1. Tensors are broadcast in the order of their names in the
request, by their bytes. The group here is one of gloo, which works on CPUs. The programs' own servers form one of NCCL,
on GPUs, so that only the stand-in (`posttrain.serving.stand_in`) can be its other end.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.engines._protocol import Link, Unanswered, together
from posttrain.errors import AlarmStop, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy

Named = Sequence[tuple[str, "Tensor"]]


def named_weights(policy: "Policy") -> "dict[str, Tensor]":
    """Weights by their names in the model's files, adapters merged. Raises `UserError` for another body."""
    from posttrain.policies.decoder import Decoder
    from posttrain.policies.language_model import LanguageModelPolicy
    from posttrain.policies.lora import merged_state

    if not isinstance(policy, LanguageModelPolicy) or not isinstance(policy.body, Decoder):
        raise UserError(
            f"engine.transfer=gloo is not there for the {policy.called} in the role '{policy.role}', whose weights may "
            "have other names in files; take engine.transfer=folder"
        )
    state = merged_state(policy.body)
    if "lm_head.weight" in policy.origin.stored and policy.body.shape.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def pieces(weights: "Mapping[str, Tensor]", most: int) -> Iterator[Named]:
    """All weights in order, in pieces of at most `most` bytes; one that is larger is a piece of its own."""
    own: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in weights.items():
        if own and size + tensor.nbytes > most:
            yield own
            own, size = [], 0
        own.append((name, tensor))
        size += tensor.nbytes
    if own:
        yield own


def named_types(piece: Named) -> tuple[list[str], list[str], list[list[int]]]:
    """Names, types and shapes of a piece."""
    names = [name for name, _ in piece]
    types = [str(tensor.dtype).removeprefix("torch.") for _, tensor in piece]
    return names, types, [list(tensor.shape) for _, tensor in piece]


class Routes(Protocol):
    """The requests of one program."""

    async def pause(self, link: Link) -> str:
        """Let a server pause; returns the label of the weights that it has."""
        ...

    async def join(self, link: Link, address: str, port: int, rank: int, size: int) -> None:
        """Make it a member of a group whose first rank is at an address."""
        ...

    async def begin(self, link: Link) -> None:
        """Begin a change of its weights."""
        ...

    async def piece(self, link: Link, piece: Named, label: str, *, last: bool) -> None:
        """Announce a piece, which it then takes from the broadcast."""
        ...

    async def end(self, link: Link, label: str) -> None:
        """End the change, and let it go on with the new weights."""
        ...


def join(address: str, port: int, rank: int, size: int, seconds: float) -> Any:
    """A process group over gloo; the first rank has the store in which the others find it."""
    from torch import distributed

    dist: Any = distributed
    timeout = timedelta(seconds=seconds)
    store = dist.TCPStore(address, port, size, is_master=rank == 0, timeout=timeout)
    return dist.ProcessGroupGloo(dist.PrefixStore("weights", store), rank, size, timeout)


def broadcast(group: Any, tensors: "Iterable[Tensor]") -> None:
    """Bytes of the first rank's tensors to all; those of the others are contiguous."""
    import torch

    for tensor in tensors:
        group.broadcast(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8), 0).wait()


def free_port(address: str) -> int:
    """A port of an address that nothing listens on."""
    with socket.create_server((address, 0)) as found:
        port: int = found.getsockname()[1]
    return port


async def _beside(work: Callable[[], Any]) -> Any:
    """The result of what waits for others, in a thread that nobody waits for where they fail."""
    future: Future[Any] = Future()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

    threading.Thread(target=run, name="posttrain-weights", daemon=True).start()
    return await asyncio.wrap_future(future)


class Phases:
    """The trainer's side."""

    def __init__(self, routes: Routes, policy: "Policy", address: str, piece_bytes: int, seconds: float) -> None:
        """`address` is where servers reach this process; `seconds` the longest wait for one of them."""
        self._routes, self._policy, self._address = routes, policy, address
        self._most, self._seconds = piece_bytes, seconds
        self._group: Any = None
        self._size: tuple[str, ...] = ()
        """The addresses of the servers of the group."""

    async def pause(self, link: Link) -> str:
        """Let a server pause; returns the label that it has."""
        return await self._routes.pause(link)

    async def give(self, links: Sequence[Link], label: str, *, anew: bool) -> int:
        """Give servers that have paused the weights of now, and let them go on. Returns the bytes that each got.

        `anew` forms the group anew, since one of them may have been started again. Raises `AlarmStop` where one does
        not take part to the end: what it has then is unknown, and so is what others of its group wait for.
        """
        try:
            if anew or self._size != tuple(link.place.address for link in links):
                await self._form(links)
            return await self._give(links, label)
        except UserError:
            self._group, self._size = None, ()
            raise
        except (Unanswered, RuntimeError) as error:
            self._group, self._size = None, ()
            raise AlarmStop(
                f"weights did not reach all of {', '.join(link.place.address for link in links)}: {error}. Nothing was "
                "learned from a partly sampled step: start these servers again and resume the run"
            ) from None

    async def _form(self, links: Sequence[Link]) -> None:
        self._group, self._size = None, ()
        port, size = free_port(self._address), len(links) + 1
        calls = [self._routes.join(link, self._address, port, rank, size) for rank, link in enumerate(links, 1)]
        own = _beside(lambda: join(self._address, port, 0, size, self._seconds))
        self._group, *_ = await together([own, *calls])
        self._size = tuple(link.place.address for link in links)

    async def _give(self, links: Sequence[Link], label: str) -> int:
        weights, routes = named_weights(self._policy), self._routes
        await together([routes.begin(link) for link in links])
        cut = list(pieces(weights, self._most))
        for piece in cut:
            own = _beside(partial(broadcast, self._group, [tensor for _, tensor in piece]))
            last = piece is cut[-1]
            await together([own, *(routes.piece(link, piece, label, last=last) for link in links)])
        await together([routes.end(link, label) for link in links])
        return sum(tensor.nbytes for tensor in weights.values())
