"""What runs in the processes of a cluster: copies of the run's models, and what samples from them or learns with them.

Plain classes; `posttrain.cluster._session` makes actors of them.
"""

import gc
import os
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from posttrain.cluster._weights import Mapped, Shared, Version, check, read
from posttrain.engines import Engine, Sampling
from posttrain.errors import RunFailed
from posttrain.types import Array, FloatArray, IntArray


class Replicas:
    """Copies of the run's models, by name."""

    def __init__(self, threads: int, node: str) -> None:
        """`node` is that of the run's own process."""
        import torch

        from posttrain.kernels.memory import keep_freed_memory

        keep_freed_memory()
        torch.set_num_threads(threads)  # Ray sets OMP_NUM_THREADS, and with it speed and rounding
        assert torch.get_num_threads() == threads, "as many as were set"
        self.policies: dict[str, Any] = {}
        self._bases: dict[str, str] = {}
        """Digests of what is frozen of them."""
        self._keys: dict[str, str] = {}
        """Versions of all of them."""
        self._mapped = Mapped()
        self._shared: dict[str, Shared] = {}
        """Those whose weights are in memory of the run's own process."""
        self._is_near = node == node_of()

    def about(self) -> dict[str, Any]:
        """What must be the same everywhere, where this is, and its threads."""
        import torch

        return {**about(self._is_near), "threads": torch.get_num_threads()}

    def free_address(self) -> str:
        """Where others find this process."""
        return free_address()

    def load(self, version: Version, path: str, with_base: bool, far: Any = None, content: bytes | None = None) -> None:
        """Give a copy the weights of a version: the buffer at `path` itself or, on another node, what was sent.

        `content` makes the copy first. (In one call: those of an actor may overtake one another.) Without the base it
        must be the one that the copy has.
        """
        name = version.name
        if content is not None:
            self.policies[name] = pickle.loads(content)
            self._shared.pop(name, None)
        if not with_base and self._bases.get(name, "") != version.base:
            raise RunFailed(f"version {version.number} of {name} arrived without its base")
        if far is not None:
            read(self.policies[name], np.asarray(far), version, with_base)
        else:
            self._share(version, path, with_base)
        self._bases[name], self._keys[name] = version.base, version.key

    def _share(self, version: Version, path: str, with_base: bool) -> None:
        """Compute with the buffer at a path, which has all weights, whatever it had before."""
        name, source = version.name, self._mapped.array(version.name, path)
        shared = self._shared.get(name)
        if shared is None or shared.source is not source:
            shared = self._shared[name] = Shared(self.policies[name], source, version)
            with_base = True
        shared.take(version, with_base)

    def forget(self, names: list[str]) -> None:
        """Drop copies."""
        for name in names:
            self.policies.pop(name, None)
            self._bases.pop(name, None)
            self._keys.pop(name, None)
            self._shared.pop(name, None)
            self._mapped.forget(name)


@dataclass(frozen=True)
class Answered:
    """What a request was answered, and the seconds in which it took the weights that were due."""

    answer: Any
    seconds: float


Due = tuple[Version, str] | None
"""A version that comes with a request, and the path of its buffer."""


class Samplers(Replicas):
    """Samples from copies of the models."""

    def __init__(self, threads: int, node: str, engine: Engine, seed: int) -> None:
        super().__init__(threads, node)
        self._engine, self._seed = engine, seed
        self._servers: dict[str, Any] = {}

    async def _answer(self, name: str, due: Due, call: Callable[[Any], Awaitable[Any]]) -> Answered:
        """What a model's server answers, with the weights that are due; requests may overtake one another."""
        spent = self.take(name, due)
        if name not in self._servers:
            self._servers[name] = self._engine.serve(self.policies[name], self._seed)
        return Answered(await call(self._servers[name]), spent)

    def take(self, name: str, due: Due) -> float:
        """Take the weights that are due, if they are not there; seconds."""
        began = time.monotonic()
        if due is None or self._keys.get(name) == due[0].key:
            return 0.0
        self.load(*due, with_base=False)
        return time.monotonic() - began

    async def complete(
        self, name: str, due: Due, token_ids: IntArray, keys: list[int], sampling: Sampling, vectors: FloatArray | None
    ) -> Answered:
        """Completions of one prompt."""
        return await self._answer(name, due, lambda server: server.complete(token_ids, keys, sampling, vectors))

    async def go_on(
        self,
        name: str,
        due: Due,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None,
        stored: Sequence[Array] | None,
    ) -> Answered:
        """Completions of one prompt, with keys and values."""
        return await self._answer(name, due, lambda server: server.go_on(token_ids, keys, sampling, vectors, stored))

    async def logp(
        self, name: str, due: Due, token_ids: IntArray, temperature: float, vectors: FloatArray | None
    ) -> Answered:
        """Log-probabilities of a sequence."""
        return await self._answer(name, due, lambda server: server.logp(token_ids, temperature, vectors))

    async def score(self, name: str, due: Due, token_ids: IntArray, vectors: FloatArray | None) -> Answered:
        """The score of a sequence."""
        return await self._answer(name, due, lambda server: server.score(token_ids, vectors))

    async def scores(self, name: str, due: Due, token_ids: IntArray, vectors: FloatArray | None) -> Answered:
        """All outputs of a reward head for a sequence."""
        return await self._answer(name, due, lambda server: server.scores(token_ids, vectors))

    def forget(self, names: list[str]) -> None:
        """Drop copies, and what serves them."""
        super().forget(names)
        for name in names:
            self._servers.pop(name, None)


class Learners(Replicas):
    """Computes gradients with copies of the models."""

    def join(self, place: str, rank: int, size: int, timeout: float) -> None:
        """Become a member of the group."""
        from posttrain.cluster._gang import join

        self._group = join(place, rank, size, timeout)
        self._rank, self._size = rank, size

    def signals(self, content: bytes) -> list[Any]:
        """Signals of some micro-batches."""
        from posttrain.cluster._references import loads

        asked, batches = loads(content, self.policies)
        return [{name: values_T.cpu() for name, values_T in asked.of(batch).items()} for batch in batches]

    def slices(self, content: bytes) -> list[Any]:
        """Do this process's part of an optimizer step; returns its slices."""
        from posttrain.cluster._gang import work
        from posttrain.cluster._references import loads
        from posttrain.cluster._sums import Sums

        try:
            policy, recompute, types, own, count, loss, progress = loads(content, self.policies)
            policy.recompute_layers(recompute)
            weights = dict(policy.named_parameters())
            sums = Sums(self._group, self._rank, self._size, {name: weights[name] for name in types}, types)
            done, _ = work(sums, policy, list(types), own, count, loss, progress)
        except BaseException:
            self._group = None  # so that the others do not wait
            raise
        return done

    def join_mesh(self, place: str, rank: int, size: int, timeout: float, groups: Sequence[Sequence[int]]) -> None:
        """Become a member of the mesh of sharded policies, and of some groups in it."""
        from posttrain.cluster._part import Meshes, leave_mesh

        leave_mesh()  # one that was left by others
        self.parts: dict[str, Any] = {}
        self._meshes = Meshes(place, rank, size, timeout, groups)

    def take_part(self, version: Version, path: str, far: Any = None, content: bytes | None = None) -> None:
        """Bring the own part of a policy to a version; `content` makes the part first."""
        from posttrain.cluster._part import Part, leave_mesh, stored
        from posttrain.cluster._references import loads

        source = np.asarray(far if far is not None else self._mapped.array(version.name, path))
        check(source, version)
        try:
            if content is not None:
                policy, learning, ranks, is_whole = loads(content, self.policies)
                mesh = self._meshes.of(ranks)
                self.parts[version.name] = Part(pickle.loads(policy), mesh, learning, whole_in_first=is_whole)
            part = self.parts[version.name]
            part.take(stored(part.policy, source))
            self._mapped.forget(version.name)
        except BaseException:
            leave_mesh()  # so that the others do not wait
            raise

    def part(self, name: str, method: str, content: bytes) -> Any:
        """Call a method of the own part of a policy."""
        from posttrain.cluster._part import leave_mesh
        from posttrain.cluster._references import loads

        try:
            part = self.parts[name]
            policies = {**self.policies, name.partition("|")[0]: part.policy}
            return getattr(part, method)(*loads(content, policies))
        except BaseException:
            leave_mesh()
            raise

    def drop_parts(self, names: list[str]) -> None:
        """Drop parts."""
        for name in names:
            self.parts.pop(name, None)
        gc.collect()


class Workers(Samplers, Learners):
    """Does any call of any model: a process of a placement."""

    def __init__(self, threads: int, node: str, engine: Engine, seed: int) -> None:
        super().__init__(threads, node, engine, seed)
        self._threads = threads
        self._formed: dict[str, tuple[Any, int, int]] = {}

    def signals(self, content: bytes) -> list[Any]:
        """Signals of some micro-batches."""
        import torch

        torch.set_num_threads(self._threads)
        return super().signals(content)

    def take_part(self, version: Version, path: str, far: Any = None, content: bytes | None = None) -> None:
        """Bring the own part of a policy to a version."""
        import torch

        torch.set_num_threads(self._threads)
        super().take_part(version, path, far, content)

    def part(self, name: str, method: str, content: bytes) -> Any:
        """Call a method of the own part of a policy."""
        import torch

        torch.set_num_threads(self._threads)
        return super().part(name, method, content)

    def form(self, key: str, place: str, rank: int, size: int, timeout: float) -> None:
        """Become a member of the group of that name."""
        from posttrain.cluster._gang import join

        self._formed[key] = join(place, rank, size, timeout), rank, size

    def gradient(self, key: str, content: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Do this process's part of an optimizer step in a group; its slices, and in rank 0 the gradient."""
        import torch

        from posttrain.cluster._gang import work
        from posttrain.cluster._references import loads
        from posttrain.cluster._sums import Sums

        torch.set_num_threads(self._threads)
        try:
            group, rank, size = self._formed[key]
            policy, recompute, types, own, count, loss, progress = loads(content, self.policies)
            policy.recompute_layers(recompute)
            weights = dict(policy.named_parameters())
            sums = Sums(group, rank, size, {name: weights[name] for name in types}, types)
            return work(sums, policy, list(types), own, count, loss, progress)
        except BaseException:
            self._formed.pop(key, None)  # so that the others do not wait
            raise


def about(is_near: bool) -> dict[str, Any]:
    """What must be the same everywhere, and where this process is."""
    return {**versions(), "pid": os.getpid(), "node": node_of(), "near": is_near}


def free_address() -> str:
    """``host:port`` of this machine, where nothing listens."""
    import ray

    from posttrain.cluster._ports import free_port

    util: Any = ray.util
    address = util.get_node_ip_address()
    return f"{address}:{free_port(address)}"


def versions() -> dict[str, str]:
    """The programs that the numbers of a run depend on."""
    return {name: version(name) for name in ("posttrain", "torch")}


def node_of() -> str:
    """The machine that this process runs on, with its space of process numbers."""
    import ray

    return f"{ray.get_runtime_context().get_node_id()}:{os.readlink('/proc/self/ns/pid')}"
