"""Starts Ray, or joins one, for a run; and ends what was started."""

import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from posttrain.cluster import Result
from posttrain.cluster._grading import grading_on
from posttrain.cluster._members import Settings
from posttrain.cluster._ports import answers, open_ports, speaks_grpc
from posttrain.cluster._processes import MARK, end, end_left_over, marked
from posttrain.cluster._samplers import HELD, ClusterServer, Held
from posttrain.cluster._session import VERSION, Processes
from posttrain.cluster._workers import Gang
from posttrain.engines import Engine, Server
from posttrain.engines._continuous import ContinuousServer
from posttrain.errors import RunFailed, UserError
from posttrain.errors.temporary import make_temporary, remove_temporary, sweep
from posttrain.training.learner import InProcess, Learner, Workers

if TYPE_CHECKING:
    from posttrain.cluster._sharded import Parts
    from posttrain.policies import Policy

STARTS: Final = 3
"""Times that a Ray is started before a run gives up."""


class Session(Processes):
    """See `posttrain.cluster.Session`."""

    def __init__(self, settings: Settings, engine: Engine, seed: int, folder: Path) -> None:
        super().__init__(settings, engine, seed, folder)
        self._threads = ThreadPoolExecutor(thread_name_prefix="posttrain-beside")
        self._copies: Counter[str] = Counter()
        """How many use each copy of a model in the samplers."""
        self._parts: Parts | None = None

    def close(self) -> None:
        """End what samples beside, then all processes."""
        self.closing = True
        if self._parts is not None:
            self._parts.close()
        super().close()
        self._threads.shutdown(cancel_futures=True)

    def serve(self, policy: "Policy") -> Server:
        """Samplers for a model of text; what writes anything else samples in this process."""
        local = self.engine.serve(policy, self.seed)
        if isinstance(local, ContinuousServer):
            return ClusterServer(self, policy, self.seed, local)
        self.note(f"the {policy.called} in the role '{policy.role}' samples in the run's own process")
        return local

    def beside(self, policies: "Collection[Policy]", work: Callable[[], Result]) -> Callable[[], Result]:
        """Do it in a thread, with copies of the weights of now in the samplers, which go when it has ended; at once
        where a model samples in this process.
        """
        if not all(isinstance(self.engine.serve(policy, self.seed), ContinuousServer) for policy in policies):
            found = work()
            return lambda: found
        held = Held({id(policy): self._copy(policy) for policy in policies})

        def begun() -> Result:
            HELD.set(held)
            return work()

        future: Future[Result] = self._threads.submit(copy_context().run, begun)

        def wait() -> Result:
            try:
                return future.result()
            finally:
                self._copies.subtract(held.names.values())

        return wait

    def _copy(self, policy: "Policy") -> str:
        """The name of a copy with the weights of now: one that has them, else the first that nobody uses."""
        name = self.name_of(policy)
        copies = [f"{name}{VERSION}{number}" for number in range(len(self._copies) + 1)]
        sent = {own: found for (_, own), found in self._sent.items()}
        same = [own for own in copies if own in sent and sent[own].has(policy)]
        chosen = (same or [own for own in copies if self._copies[own] <= 0])[0]
        self._copies[chosen] += 1
        self.publish_as(chosen, policy, "sample", policy)
        return chosen

    def workers(self, learner: Learner) -> Workers:
        """This process alone, or with the other learners."""
        if not self.learners and not self.scorers:
            return InProcess()
        if self.settings.sharding == "none" or not self.learners:
            return Gang(self)
        from posttrain.cluster._sharded import Parts, ShardedGang

        self._parts = self._parts or Parts(self)
        return ShardedGang(self, self._parts, learner)

    def keep(self, policies: "Collection[Policy]") -> None:
        """Forget all models but these."""
        alive = {id(policy) for policy in policies}
        if self._parts is not None:
            self._parts.forget([name for key, (name, _) in self._names.items() if key not in alive])
        super().keep(policies)


@contextmanager
def opened(
    settings: Settings, engine: Engine, seed: int, kind: "Callable[[Any, Engine, int, Path], Session]" = Session
) -> Iterator[Session]:
    """Start Ray, or join the one that is there, and the actors; end what was started."""
    sweep()
    end_left_over()
    folder = make_temporary("ray")
    restore = _environment(settings, folder)
    try:
        with _joined(settings, folder):
            session = kind(settings, engine, seed, folder)
            try:
                session.start()
                _note_open_ports(session)
                with grading_on(session):
                    yield session
            finally:
                session.close()
    finally:
        restore()
        end(str(folder))
        remove_temporary(folder)


def _note_open_ports(session: Session) -> None:
    """Name the ports of the run's processes on this machine that others can reach."""
    near = [member.pid for member in session.all if member.is_near]
    own = [pid for pid, folder in marked().items() if folder == str(session.folder)]
    if found := sorted({port.number for port in open_ports({os.getpid(), *near, *own})}):
        session.note(
            f"ports of this run that answer from another address: {', '.join(map(str, found))}; who reaches them and "
            "has the token of its Ray runs any code as you, so run on a private network"
        )


def _environment(settings: Settings, folder: Path) -> Callable[[], None]:
    """Set what Ray reads when it starts; returns what undoes it."""
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_MODE": "token"}
    if not settings.address:
        token = folder / "token"
        with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        own |= {"RAY_AUTH_TOKEN_PATH": str(token), "GLOO_SOCKET_IFNAME": "lo"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    _read_environment_anew()

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return restore


def _read_environment_anew() -> None:
    """Make Ray look for its token again: it keeps the first one that it saw in this process, or that there was none."""
    from ray import _raylet

    loader: Any = getattr(_raylet, "AuthenticationTokenLoader", None)
    configured: Any = getattr(_raylet, "Config", None)
    if configured is not None and hasattr(configured, "initialize"):
        configured.initialize("")
    if loader is not None:
        loader.instance().reset_cache()


@contextmanager
def _joined(settings: Settings, folder: Path) -> Iterator[None]:
    """Inside, this process is a driver of Ray."""
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if settings.address:
        join(settings.address, quiet)
        try:
            _check_free(settings)
            yield
        finally:
            ray.shutdown()
        return
    # Ray lets every user write to its folder; nobody else comes to that one, which is inside the run's own
    options: dict[str, Any] = {"num_cpus": settings.processes, "_temp_dir": str(folder / "ray")}
    _start({**options, "include_dashboard": False, "object_store_memory": settings.store_mb << 20, **quiet}, folder)
    try:
        yield
    finally:
        ray.shutdown()


def _start(options: dict[str, Any], folder: Path) -> None:
    """Start a Ray, again where the machine is too busy: Ray gives its processes 30 seconds."""
    import ray

    os.environ[MARK] = str(folder)  # only while Ray starts: graders of this process are none of its own
    try:
        for left in reversed(range(STARTS)):
            try:
                ray.init(address="local", **options)
                return
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
                ray.shutdown()
                end(str(folder), patience=0.0)
                if not left:
                    raise RunFailed(
                        f"Ray did not start {STARTS} times, each time within 30 seconds: this machine is too busy. "
                        "Try again later, or leave the cluster out; the numbers are the same"
                    ) from None
    finally:
        del os.environ[MARK]


def join(address: str, options: dict[str, Any]) -> None:
    """Join the Ray at an address. Raises `UserError` where there is none, or it refuses."""
    import ray

    host, _, port = address.rpartition(":")
    if port.isdecimal():
        if not answers(host, int(port)):
            raise UserError(
                f"nothing answers at {address}; cluster.address is HOST:PORT of the head of a Ray that runs (ray start "
                "--head), or auto for one on this machine"
            )
        if not speaks_grpc(host, int(port)):
            raise UserError(
                f"what answers at {address} is no Ray; cluster.address is HOST:PORT of the head of a Ray that runs, "
                "6379 if no other port was given"
            )
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(refusal(address, error)) from None


def refusal(address: str, error: Exception) -> str:
    """Why a Ray was not joined, in one sentence."""
    message = " ".join(str(error).split())
    if message.startswith("Version mismatch"):
        return f"the Ray at {address} is of other versions than this process; install the same everywhere ({message})"
    if isinstance(error, ConnectionError) and address != "auto":
        where = os.environ.get("RAY_AUTH_TOKEN_PATH") or "RAY_AUTH_TOKEN or ~/.ray/auth_token"
        return f"the Ray at {address} did not let this process in, mostly since its token is not that of {where}"
    if isinstance(error, ConnectionError):
        return "no Ray runs on this machine, or none of yours; start it, or give cluster.address=HOST:PORT"
    return f"the Ray at {address} could not be joined: {message}"


def _check_free(settings: Settings) -> None:
    """Raise `UserError` where the Ray that is there has too little free."""
    import ray

    there: Any = ray
    asked, free = settings.cpus * settings.processes, there.available_resources().get("CPU", 0.0)
    if asked > free:
        raise UserError(
            f"cluster.samplers={settings.samplers}, cluster.learners={settings.learners}, cluster.scorers="
            f"{settings.scorers} and cluster.graders={settings.graders} ask for {asked:g} CPUs "
            f"({settings.cpus:g} a process; the first learner is this process), and {free:g} are free of the "
            f"{there.cluster_resources().get('CPU', 0.0):g} of {settings.address}; ask for fewer, or set cluster.cpus"
        )
