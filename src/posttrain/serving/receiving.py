"""Weights that reach a stand-in in phases: requests, their order, and the group beside them.

The other end of `posttrain.engines._phases`. Everything is refused that vLLM 0.33 and SGLang 0.5.23, as read, would not
take: another order, other fields, names that the model does not have, twice or in another shape, and an end before all
have come. In place of SGLang, an end is refused too where caches or a label of the old weights would stay.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from posttrain.component import frozen
from posttrain.serving.fields import Flag, Refused, Text, Whole

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 60.0
"""Seconds until the group is formed, and for one tensor."""


@frozen
class InitInfo:
    """``init_info``."""

    master_address: Text
    master_port: Whole
    rank_offset: Whole
    world_size: Whole


@frozen
class Init:
    """``/init_weight_transfer_engine``."""

    init_info: InitInfo


@frozen
class UpdateInfo:
    """``update_info``, a list of each."""

    names: tuple[Text, ...]
    dtype_names: tuple[Text, ...]
    shapes: tuple[tuple[Whole, ...], ...]


@frozen
class Update:
    """``/update_weights``."""

    update_info: UpdateInfo


@frozen
class Finish:
    """``/finish_weight_update``."""

    weight_version: Text


@frozen
class InitGroup:
    """``/init_weights_update_group`` of SGLang."""

    master_address: Text
    master_port: Whole
    rank_offset: Whole
    world_size: Whole
    group_name: Text
    backend: Literal["gloo"]


@frozen
class FromDistributed:
    """``/update_weights_from_distributed`` of SGLang."""

    names: tuple[Text, ...]
    dtypes: tuple[Text, ...]
    shapes: tuple[tuple[Whole, ...], ...]
    group_name: Text
    flush_cache: Flag
    weight_version: Text | None = None


@frozen
class Nothing:
    """``/begin_weight_update`` and ``/end_weight_update`` of SGLang."""


class Receiver:
    """A server's side of the phases. Calls that wait for others are made in a thread."""

    def __init__(self) -> None:
        self._group: Any = None
        self.name = ""
        """Of the group, where it has one."""
        self._given: dict[str, Tensor] | None = None
        """What has come since the start; None before it."""

    @property
    def is_open(self) -> bool:
        """Whether an update has begun and not ended."""
        return self._given is not None

    def join(self, info: InitInfo | InitGroup) -> None:
        """Become a member of the group."""
        from posttrain.engines._phases import join

        if not 0 < info.rank_offset < info.world_size:
            raise Refused(f"rank_offset={info.rank_offset} in a group of {info.world_size}: the trainer has rank 0")
        self._given, self.name = None, info.group_name if isinstance(info, InitGroup) else ""
        self._group = join(info.master_address, info.master_port, info.rank_offset, info.world_size, LONGEST)

    def start(self, is_paused: bool) -> None:
        """Begin."""
        if self._group is None:
            raise Refused("there is no group yet, which is initialized first", status=409)
        if not is_paused or self.is_open:
            raise Refused("an update begins once, while the server is paused", status=409)
        self._given = {}

    def take(self, info: UpdateInfo, own: "Mapping[str, Tensor]") -> None:
        """Receive a piece of the weights of a model that has these."""
        import torch

        from posttrain.engines._phases import broadcast

        given = self._opened()
        if not len(info.names) == len(info.dtype_names) == len(info.shapes) > 0:
            raise Refused("names, dtype_names and shapes are lists of one length")
        found: dict[str, Tensor] = {}
        for name, type_, shape in zip(info.names, info.dtype_names, info.shapes, strict=True):
            dtype = getattr(torch, type_, None)
            if name not in own or name in given or name in found:
                raise Refused(f"{name} is no weight of this model, or came before")
            if not isinstance(dtype, torch.dtype) or own[name].shape != shape:
                raise Refused(f"{name} is {type_} {list(shape)}; this model's is {list(own[name].shape)}")
            found[name] = torch.empty(shape, dtype=dtype)
        broadcast(self._group, found.values())
        given.update(found)

    def finish(self, own: "Mapping[str, Tensor]") -> None:
        """Write what has come to a model's weights."""
        import torch

        given = self._opened()
        if missing := [name for name in own if name not in given]:
            raise Refused(f"{len(missing)} weights have not come, the first {missing[0]}", status=409)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(given[name])
        self._given = None

    def _opened(self) -> "dict[str, Tensor]":
        if self._given is None:
            raise Refused("no update has begun, which comes first", status=409)
        return self._given
