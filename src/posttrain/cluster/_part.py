"""What one learner has of a policy that is sharded: FSDP2 of torch, with sums in the order of the slices.

Weights are cut by rows, one cut a learner (`fully_shard`). A layer is gathered for its passes and given up after them.
A trained weight has one owner among the learners, who has its sum of gradients, its master and its moments, all whole:
so norms, orthogonal updates, masks and rounding are those of one process, whatever the number of learners. What torch
would sum in a reduce-scatter, whose order depends on that number, goes to the owner in pieces, who adds them up in the
order of the slices, as `posttrain.cluster._sums` does.

Scalars, and trained weights of another type than the others of their layer, are whole in every learner.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posttrain.cluster._gang import Numbered, on_cpu
from posttrain.cluster._groups import Bucket, Pieces, cut, exchanged, fetched, handed_out, owners
from posttrain.cluster._weights import aligned, write_at
from posttrain.policies import Policy
from posttrain.policies.decoder import Decoder
from posttrain.policies.vocabulary import rounded_once
from posttrain.signals import Signal
from posttrain.training.learner import Asked, Loss, Slice
from posttrain.training.packing import MicroBatch
from posttrain.training.settings import Learning
from posttrain.training.updates import Weights


def join_mesh(place: str, rank: int, size: int, timeout: float) -> Any:
    """A device mesh of all learners over gloo. `place` is a file that all can reach, or ``host:port``."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    dist: Any = distributed
    limit = timedelta(seconds=timeout)
    if Path(place).is_absolute():
        store = dist.FileStore(place, size)
    else:
        host, _, port = place.rpartition(":")
        store = dist.TCPStore(host, int(port), size, is_master=rank == 0, timeout=limit)
    dist.init_process_group("gloo", None, limit, size, rank, store)
    return init_device_mesh("cpu", (size,))


class Meshes:
    """All processes that may have parts, and groups of some of them."""

    def __init__(self, place: str, rank: int, size: int, timeout: float, groups: Sequence[Sequence[int]] = ()) -> None:
        """All do this at the same time; a group is the ranks of its members, ascending."""
        from torch import distributed
        from torch.distributed.device_mesh import DeviceMesh

        dist: Any = distributed
        self._meshes = {tuple(range(size)): join_mesh(place, rank, size, timeout)}
        for ranks in groups:
            group = dist.new_group(list(ranks), timedelta(seconds=timeout), "gloo")
            if rank in ranks:
                self._meshes[tuple(ranks)] = DeviceMesh.from_group(group, "cpu")

    def of(self, ranks: Sequence[int]) -> Any:
        """The mesh of these."""
        return self._meshes[tuple(ranks)]


def leave_mesh() -> None:
    """Close all connections, so that the others do not wait. Nothing where there are none."""
    from torch import distributed

    dist: Any = distributed
    if dist.is_initialized():
        dist.destroy_process_group()


class Part:
    """The part of one learner. All learners call the same methods at the same time; results are their own."""

    def __init__(self, policy: Policy, mesh: Any, learning: Learning | None, *, whole_in_first: bool = True) -> None:
        """`policy` is whole, the same everywhere, and becomes a sharded one; `learning` is None for a frozen one.

        `whole_in_first` states that learner 0 gets all weights after an update; otherwise each keeps those that it
        updates, and hands them out.
        """
        if learning is None:
            policy.requires_grad_(False)
        else:
            policy.recompute_layers(learning.recompute)
        self.policy, self.rank, self.size = policy, int(mesh.get_local_rank()), int(mesh.size())
        self._group, self._whole_in_first = mesh.get_group(), whole_in_first
        parameters = dict(policy.named_parameters())
        self.trained = [name for name, p in parameters.items() if p.requires_grad]
        self._shapes = {name: p.shape for name, p in parameters.items()}
        self.owner = owners({name: parameters[name].numel() for name in self.trained}, self.size)
        self.whole = {
            name: nn.Parameter(parameters[name].detach().clone())
            for name in self.trained
            if self.owner[name] == self.rank
        }
        """Weights that are updated here."""
        self.own = Weights(self.whole, learning) if learning is not None else None
        self._has: Sequence[bool] = ()
        self._plain: dict[str, nn.Parameter] = {}
        """Trained weights that are whole everywhere."""
        self._buckets: list[Bucket] = []
        self._modules: list[Any] = []
        self._shard(parameters, mesh)

    def _shard(self, parameters: Mapping[str, nn.Parameter], mesh: Any) -> None:
        """Cut the weights; the layers of the native decoder one by one. (Those of `transformers` are called as often as
        a slice has lengths, and collectives must be as many in all learners.)
        """
        from torch.distributed import fsdp

        torch_fsdp: Any = fsdp
        body = getattr(self.policy, "body", None)
        layers: list[nn.Module] = list(body.model.layers) if isinstance(body, Decoder) else []
        left = dict(parameters)
        for module in [*layers, self.policy]:
            own = {id(p) for p in module.parameters()}
            names = [name for name, p in left.items() if id(p) in own]
            types = [left[name].dtype for name in names if name in self.owner]
            usual = max(set(types), key=types.count) if types else None
            plain = [n for n in names if not self._shapes[n] or (n in self.owner and left[n].dtype != usual)]
            self._plain |= {name: left[name] for name in plain}
            left = {name: p for name, p in left.items() if name not in names}
            torch_fsdp.fully_shard(module, mesh=mesh, ignored_params=set(self._plain.values()))
            self._modules.append(module)
        torch_fsdp.register_fsdp_forward_method(self.policy, "evaluate")
        named = {id(p): name for name, p in self.policy.named_parameters()}
        for module in self._modules:
            for group in module._get_fsdp_state()._fsdp_param_groups:
                self._watch(module, group, {id(p): named[id(p.sharded_param)] for p in group.fsdp_params})
        self._plain = {name: p for name, p in self._plain.items() if name in self.owner}
        for kind in sorted({str(p.dtype) for p in self._plain.values()}):
            self._buckets.append(Bucket(tuple(n for n, p in self._plain.items() if str(p.dtype) == kind), plain=True))

    def _watch(self, module: Any, group: Any, names: Mapping[int, str]) -> None:
        """Take the gradients of a group of weights before torch adds them up, with word of which there are."""
        own = tuple(names[id(p)] for p in group.fsdp_params if names[id(p)] in self.owner)
        if not own:
            return
        self._buckets.append(Bucket(own))
        shapes = {name: self._shapes[name] for name in own}
        pieces = Pieces(shapes, self.size, lambda given, used: self._exchange(own, given, used))
        module.set_custom_reduce_scatter(pieces)
        module.set_reduce_scatter_unused_params(True, recurse=False)
        before = group.post_backward

        def post_backward(*unused: Any) -> None:
            with rounded_once() as sums:
                for p in group.fsdp_params:
                    if getattr(p, "_unsharded_param", None) is not None:
                        sums.give(p.unsharded_param)
            pieces.used = {
                names[id(p)]: getattr(p, "_unsharded_param", None) is not None and p.unsharded_param.grad is not None
                for p in group.fsdp_params
            }
            before()

        group.post_backward = post_backward

    # Gradients

    def slices(
        self, given: Sequence[Numbered], spare: MicroBatch, count: int, loss: Loss, progress: float
    ) -> list[tuple[int, Slice]]:
        """This learner's slices of `count`. Where it has none left it computes the spare one, which does not count, as
        all must take part in what is gathered.
        """
        done = []
        slices = iter(given)
        for begin in range(0, count, self.size):
            self._has = [begin + rank < count for rank in range(self.size)]
            k, batch = next(slices) if self._has[self.rank] else (-1, spare)
            found = Slice.of(self.policy, batch, loss, progress)
            if k >= 0:
                done.append((k, on_cpu(found)))
            for bucket in self._buckets:
                if bucket.plain:
                    self._exchange_plain(bucket)
            for parameter in self.policy.parameters():
                parameter.grad = None
        return done

    def _exchange_plain(self, bucket: Bucket) -> None:
        grads = {name: self._plain[name].grad for name in bucket.names}
        zeros = {name: torch.zeros_like(self._plain[name]) for name, grad in grads.items() if grad is None}
        given = {name: zeros[name] if grad is None else grad for name, grad in grads.items()}
        self._exchange(bucket.names, given, {name: grad is not None for name, grad in grads.items()})

    def _exchange(self, names: Sequence[str], given: Mapping[str, Tensor], used: Mapping[str, bool]) -> None:
        """Give the gradients of one slice to the owners, and add what comes, in the order of the slices.

        One that a slice does not use is left out and not added as zeros: -0.0 + 0.0 is 0.0.
        """
        assert self.own is not None, "a frozen policy has no gradient"
        own = [name for name in names if self.owner[name] == self.rank]
        for rank, found in enumerate(exchanged(self._group, names, given, used, self.owner)):
            for name in own if self._has[rank] else ():
                piece, is_used = found[name]
                parameter = self.own.parameters[name]
                if not is_used:
                    continue
                piece = piece.reshape(self._shapes[name])
                if parameter.grad is None:
                    parameter.grad = piece.to(parameter.dtype, copy=True)
                else:
                    parameter.grad.add_(piece)

    def signals(self, asked: Asked, batches: Sequence[MicroBatch]) -> list[dict[Signal, Tensor]]:
        """Signals of some micro-batches, as many in all learners."""
        found = [{name: values_T.cpu() for name, values_T in asked.of(batch).items()} for batch in batches]
        self.give_up()
        return found

    # Updates

    def norms(self) -> dict[str, Tensor]:
        """The norms of the gradients of the own weights."""
        return self._own.norms()

    def update(self, norm: Tensor, factor: float, whole: Policy | None = None) -> None:
        """Update all weights; in learner 0, those of `whole` too."""
        self._own.update(norm, factor)
        self.give_up()
        with torch.no_grad():
            for bucket in self._buckets:
                self._spread(bucket, dict(whole.named_parameters()) if whole is not None else {})

    def _spread(self, bucket: Bucket, whole: Mapping[str, Tensor]) -> None:
        """Bring the weights of a bucket from their owners to the rows of all, and whole to learner 0."""
        by_owner = [[n for n in bucket.names if self.owner[n] == rank] for rank in range(self.size)]

        def share(name: str, rank: int) -> slice:
            everything = bucket.plain or (rank == 0 and self._whole_in_first)
            return slice(None) if everything else cut(self._shapes[name], rank, self.size)

        def count(name: str, rank: int) -> int:
            shape = self._shapes[name]
            rows = len(range(shape[0])[share(name, rank)]) if shape else 1
            return rows * (shape.numel() // max(shape[0], 1) if shape else 1)

        given = [
            self.whole[n].detach()[share(n, rank)].reshape(-1)
            if self._shapes[n]
            else self.whole[n].detach().reshape(-1)
            for rank in range(self.size)
            for n in by_owner[self.rank]
        ]
        kind = dict(self.policy.named_parameters())[bucket.names[0]].dtype
        sent = [sum(count(n, rank) for n in by_owner[self.rank]) for rank in range(self.size)]
        names = [n for own in by_owner for n in own]
        into = torch.empty(sum(count(n, self.rank) for n in names), dtype=kind)
        received = [sum(count(n, self.rank) for n in own) for own in by_owner]
        _all_to_all(self._group, into, torch.cat(given) if given else into[:0], received, sent)
        for name, values in zip(names, torch.split(into, [count(n, self.rank) for n in names]), strict=True):
            if bucket.plain or (self.rank == 0 and self._whole_in_first):
                values = values.reshape(self._shapes[name])
                if name in whole:
                    whole[name].copy_(values)
                self._put_rows(name, values)
            else:
                rows = self._rows(name)
                rows.copy_(values.reshape(rows.shape))

    @property
    def _own(self) -> Weights:
        assert self.own is not None, "a frozen policy is not updated"
        return self.own

    # Weights

    def _rows(self, name: str) -> Tensor:
        """The own rows of a weight, to be written to."""
        parameter: Any = dict(self.policy.named_parameters())[name]
        rows: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter.detach()
        return rows.detach()

    def _put_rows(self, name: str, whole: Tensor) -> None:
        rows = self._rows(name)
        rows.copy_(whole if rows.shape == whole.shape else whole[cut(whole.shape, self.rank, self.size)])

    @torch.no_grad()
    def take(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over whole weights and buffers that were changed outside."""
        self.give_up()
        buffers = dict(self.policy.named_buffers())
        for name, tensor in weights:
            if name in buffers:
                buffers[name].copy_(tensor)
                continue
            self._put_rows(name, tensor)
            if name in self.whole:
                self.whole[name].copy_(tensor)
        if self.own is not None:
            self.own.masters.follow()

    def give_up(self) -> None:
        """Give up the layers that were gathered."""
        for module in self._modules:
            module.reshard()

    # State

    def state(self) -> dict[str, Tensor]:
        """In learner 0, moments and masters of all; elsewhere nothing."""
        return fetched(self._group, self._own.state())

    def gradients(self) -> dict[str, Tensor]:
        """In learner 0, the gradient of all; elsewhere nothing."""
        return fetched(self._group, self._own.gradients())

    def load_state(self, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Restore what `state` returned; only learner 0 has it."""
        self._own.load_state(handed_out(self._group, tensors, {n: self.owner[n] for n in self.trained}))

    def piece(self, what: Literal["weights", "gradients", "state"], start: int, most: int) -> dict[str, Tensor]:
        """What is owned here from a place on, about `most` bytes of it; empty at the end."""
        own: Mapping[str, Tensor] = self.whole
        if what == "state":
            own = self._own.state()
        elif what == "gradients":
            own = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self._own.parameters.items()}
        found: dict[str, Tensor] = {}
        for name, tensor in list(own.items())[start:]:
            if found and sum(other.nbytes for other in found.values()) + tensor.nbytes > most:
                break
            found[name] = tensor.detach()
        return found

    def hand_over(self, path: str, places: Mapping[str, int]) -> None:
        """Write the weights that are owned here into the buffer of the run's own process."""
        write_at(path, self.whole, places)

    def load_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `piece` returned of the state."""
        self._own.load_state(tensors)

    def reset(self) -> None:
        """Forget the moments."""
        self._own.reset()

    def drop(self) -> None:
        """Forget the gradient."""
        self._own.drop()

    def bytes(self) -> dict[str, int]:
        """Bytes here between two steps, by what they are for."""
        rows = [self._rows(name) for name in self._shapes]
        weights = sum(tensor.nbytes for tensor in [*rows, *self.policy.buffers()])
        found = {"weights": weights, "gradients": 0, "optimizer": 0}
        if self.own is not None:
            gradients = [p.grad for p in self.own.parameters.values() if p.grad is not None]
            found["weights"] += sum(tensor.nbytes for tensor in self.whole.values())
            found["gradients"] = sum(p.nbytes for p in self.own.parameters.values()) if not gradients else 0
            found["gradients"] += sum(gradient.nbytes for gradient in gradients)
            found["optimizer"] = sum(tensor.nbytes for tensor in self.own.state().values())
        return found


def _all_to_all(group: Any, into: Tensor, given: Tensor, received: list[int], sent: list[int]) -> None:
    from torch import distributed

    dist: Any = distributed
    dist.all_to_all_single(into, given, received, sent, group=group)


def stored(policy: Policy, source: Any) -> Iterator[tuple[str, Tensor]]:
    """Whole weights and buffers by name, from the bytes that `posttrain.cluster._weights.write` wrote."""
    start = 0
    for name, tensor in [*policy.named_parameters(), *policy.named_buffers()]:
        own = torch.frombuffer(bytearray(source[start : start + tensor.nbytes]), dtype=tensor.dtype)
        yield name, own.reshape(tensor.shape)
        start += aligned(tensor.nbytes)
