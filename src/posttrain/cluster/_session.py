"""The processes of a run on Ray: actors that sample, actors that learn, and how they get weights."""

import contextlib
import statistics
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from posttrain.cluster._members import Member, Settings, draining
from posttrain.cluster._store import put
from posttrain.cluster._weights import Buffer, Sent, Version, without_weights
from posttrain.engines import Engine
from posttrain.errors import RunFailed, UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy


VERSION: Final = "~"
"""Between the name of a model and the number of one of several copies, with weights of different versions."""


def plain(name: str) -> str:
    """The name of the model of a copy."""
    return name.partition(VERSION)[0]


Use = Literal["sample", "learn", "score"]
"""What copies of a model are for: those of samplers, of learners, of scorers."""
LONGEST_START = 120.0
"""Seconds until an actor is there."""
MOST_REPLACED = 3
"""Times that one process is replaced before the run gives up."""
SLOW, ENOUGH = 4.0, 8
"""Times that a sampler takes as long as the others before a note names it, and answers until they are compared."""
PATIENCE = 20.0
"""Seconds until there must be a place for a process that replaces another, or the run goes on without."""
ANSWER = 10.0
"""Seconds for an answer whether a place is there, from Ray on a busy machine."""


class _PlaceLost(RunFailed):
    """A process is not there in time, or its machine ended before it was."""


class Processes:
    """The actors of a run."""

    def __init__(self, settings: Settings, engine: Engine, seed: int, folder: Path) -> None:
        self.settings, self.engine, self.seed, self.folder = settings, engine, seed, folder
        self.samplers: list[Member] = []
        self.learners: list[Member] = []
        """All but the first, which is this process."""
        self.scorers: list[Member] = []
        """Processes for forward passes of models that are not trained."""
        self.graders: list[Member] = []
        """Processes whose workers and sandboxes score."""
        self._names: dict[int, tuple[str, Policy]] = {}
        self._sent: dict[tuple[str, str], Sent] = {}
        self.counting = threading.RLock()
        """Held where a thread chooses a sampler, replaces a process, or changes what a new process would be given."""
        self.closing = False
        self._notes: list[str] = []
        self._timing = dict[str, float]()
        self._taking: dict[str, tuple[str, float]] = {}
        """Seconds that the slowest took to read a version of each model, and which."""
        self._count = 0
        self._groups = 0
        self.group: Any = None
        """The learners' process group, while there is one."""
        self._lost: list[tuple[list[Member], Member]] = []
        """Those that ended without a place for another yet, with their pools; each has the place that it waits for."""

    def start(self) -> None:
        """Start all actors at the same time. Raises `UserError` where they are not of this version."""
        self.samplers = [self._start("Samplers", number) for number in range(self.settings.samplers)]
        self.learners = [self._start("Learners", number) for number in range(1, self.settings.learners)]
        self.scorers = [self._start("Learners", number) for number in range(self.settings.scorers)]
        self.graders = [self._start("Graders", number) for number in range(self.settings.graders)]
        for member in self.all:
            self._check(member)

    @property
    def all(self) -> "list[Member]":
        """Every actor."""
        return [*self.samplers, *self.learners, *self.scorers, *self.graders]

    def _start(self, kind: str, number: int, place: Any = None) -> Member:
        import ray
        import torch
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from posttrain.cluster import _actors
        from posttrain.cluster._graders import Graders

        options: dict[str, Any] = {"num_cpus": self.settings.cpus, "max_restarts": 0}
        if place is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(place)
        elif kind == "Graders":
            options["scheduling_strategy"] = "SPREAD"
        remote = ray.remote(Graders if kind == "Graders" else getattr(_actors, kind)).options(**options)
        given = (self.engine, self.seed) if kind in ("Samplers", "Workers") else ()
        return Member(remote.remote(torch.get_num_threads(), _actors.node_of(), *given), number, place=place)

    def _check(self, member: Member) -> None:
        """Wait until an actor is there. Raises `UserError` for another version of what decides about bits."""
        import ray

        from posttrain.cluster._actors import versions
        from posttrain.cluster._graders import check_grader

        asked, until = member.actor.about.remote(), time.monotonic() + LONGEST_START
        while not ray.wait([asked], timeout=PATIENCE)[0] and time.monotonic() < until:
            if member.place is not None and not member.place.wait(ANSWER):
                raise _PlaceLost("the machine that had a place for it is gone")
        try:
            about = ray.get(asked, timeout=0.1)
        except ray.exceptions.GetTimeoutError:
            raise _PlaceLost(
                f"no place was found for a process of the run within {LONGEST_START:g} seconds; posttrain "
                "cluster check shows what is there"
            ) from None
        own = versions()
        if other := {name: about[name] for name in own if about[name] != own[name]}:
            raise UserError(
                f"node {about['node'].partition(':')[0]} has {other}, and this process {own}; the numbers of a run "
                "depend on both, so install the same versions everywhere"
            )
        if "tier" in about and (note := check_grader(about, member)):
            self._notes.append(note)
        member.pid, member.node, member.is_near = about["pid"], about["node"].partition(":")[0], about["near"]

    def replace(self, members: list[Member], dead: Member, why: str) -> None:
        """Start a new process in the place of one that ended. Raises `RunFailed` after some of them.

        Where there is no place for it, the others go on without, and `admit` starts it when there is. A sampler has
        all copies before anyone can choose it: what samples beside the learner publishes nothing. `counting` is held.
        """
        if self.closing:
            raise RunFailed("the run is ending")
        noun = f"{self.kind_of(members)[1]} {dead.number}"
        if dead.replaced >= MOST_REPLACED:
            raise RunFailed(f"{noun} ended {dead.replaced + 1} times: {why}")
        if members is self.learners:
            self.group = None  # a group without it is none
        self._new_place(dead)
        if self.can_do_without(members) and not dead.place.wait(PATIENCE):
            self._go_on_without(members, dead, f"there is no place for another ({why})")
            return
        self._notes.append(f"{noun} (process {dead.pid}) ended and was replaced: {why}")
        self._restart(members, members.index(dead), dead)

    def _new_place(self, dead: Member) -> None:
        """Ask for a place for a process that replaces this one, which is ended if it is not yet."""
        import ray

        util: Any = ray.util
        with contextlib.suppress(Exception):
            ray.kill(dead.actor)
            if dead.place is not None:
                util.remove_placement_group(dead.place)
        dead.place = util.placement_group([{"CPU": self.settings.cpus}])

    def _go_on_without(self, members: list[Member], dead: Member, why: str) -> None:
        """Leave its work to the others until `admit` starts it; after failures not before some time."""
        members.remove(dead)
        self._lost.append((members, dead))
        dead.earliest = time.monotonic() + min(2.0**dead.failed, LONGEST_START) - 1.0
        self._notes.append(
            f"{self.kind_of(members)[1]} {dead.number} (process {dead.pid}) ended, and {why}: the others go on without "
            "until there is one"
        )

    def _restart(self, members: list[Member], index: int, dead: Member) -> None:
        """Start a process in the place that is kept for it.

        Ray may give places on a machine that is gone before it has noticed. So a process that is never there does not
        count as replaced: the others go on without it, or it is tried again for two minutes.
        """
        import ray

        until = time.monotonic() + LONGEST_START
        while True:
            member = members[index] = self._start(self.kind_of(members)[0], dead.number, dead.place)
            member.pid, member.replaced, member.failed = dead.pid, dead.replaced + 1, dead.failed
            try:
                self._check(member)
                break
            except (ray.exceptions.RayActorError, _PlaceLost) as error:
                why = str(error).splitlines()[0]
            member.replaced, member.failed, dead = dead.replaced, dead.failed + 1, member
            self._new_place(member)
            if self.can_do_without(members):
                return self._go_on_without(members, member, f"another did not start where it had a place ({why})")
            if time.monotonic() > until:
                raise RunFailed(f"{self.kind_of(members)[1]} {member.number} could not be started again: {why}")
            time.sleep(1.0)
        member.failed = 0
        if members is self.samplers:
            try:
                self._catch_up("sample", member)
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                self.replace(members, member, str(error).splitlines()[0])

    def can_do_without(self, members: list[Member]) -> bool:
        """Whether the other processes of a kind can do the work of one."""
        if members is self.learners:
            return self.settings.sharding == "none"
        return len(members) > 1 or members is self.graders

    def admit(self, members: list[Member]) -> None:
        """Follow the machines that come and go.

        Processes of a kind leave those that are about to go, but for one that the others cannot do without; those
        that were lost and have a place now are started.
        """
        with self.counting:
            leaving = draining() if any(not member.is_near for member in members) else ()
            for member in [own for own in members if own.node in leaving]:
                if self.can_do_without(members):
                    member.replaced = 0  # it did not end by itself
                    self.replace(members, member, "its machine is about to leave")
            for pool, lost in list(self._lost):
                if pool is members and time.monotonic() >= lost.earliest and lost.place.wait(0.1):
                    self._lost.remove((pool, lost))
                    index = sum(member.number < lost.number for member in members)
                    members.insert(index, lost)
                    lost.replaced = 0  # it was its machine that ended
                    if members is self.learners:
                        self.group = None
                    self._notes.append(f"{self.kind_of(members)[1]} {lost.number} has a place again")
                    self._restart(members, index, lost)

    def kind_of(self, members: list[Member]) -> tuple[str, str]:
        """The class of these actors, and what one is called."""
        kinds = {
            id(self.samplers): ("Samplers", "sampler"),
            id(self.learners): ("Learners", "learner"),
            id(self.graders): ("Graders", "grader"),
        }
        return kinds.get(id(members), ("Learners", "scorer"))

    def close(self) -> None:
        """End all actors, and free all buffers."""
        import ray

        for member in self.all:
            with contextlib.suppress(Exception):
                ray.kill(member.actor)
        for sent in self._sent.values():
            sent.buffer.close()

    # Weights

    def name_of(self, policy: "Policy") -> str:
        """The name of a model in the cluster."""
        with self.counting:
            if id(policy) not in self._names:
                self._names[id(policy)] = (f"{policy.role}-{self._count}", policy)
                self._count += 1
            return self._names[id(policy)][0]

    def publish(self, policy: "Policy", use: Use, by: "Policy | None" = None) -> Version:
        """Make all samplers, learners or scorers have the weights as they are now; `use` names which.

        `by` is the model whose processes these are, where it is another one.
        """
        return self.publish_as(self.name_of(policy), policy, use, by or policy)

    def publish_as(self, name: str, policy: "Policy", use: Use, by: "Policy") -> Version:
        """The same for a copy of that name."""
        began = time.monotonic()
        if use == "sample":
            self.admit(self.samplers)
            self.admit(self.graders)
        with self.counting:
            sent = self.sent(use, name)
            last = sent.now(policy)
        size = self._give_all(policy, last, sent.buffer, use, by)
        if size is not None:
            self.brought(policy, size, time.monotonic() - began)
        return last

    def brought(self, policy: "Policy", size: int, seconds: float) -> None:
        """Count a version that went to its readers, or to its parts."""
        spent = {"weight_bytes": float(size), "seconds_weights": seconds}
        self._timing |= {name: self._timing.get(name, 0.0) + value for name, value in spent.items()}

    def sent(self, use: Use, name: str) -> Sent:
        """The weights of a model, as they are for a use."""
        with self.counting:
            return self._sent.setdefault((self.buffer_of(use), name), Sent(name))

    def members(self, use: Use, policy: "Policy") -> list[Member]:
        """The samplers, learners or scorers of a model: here those of all."""
        return {"sample": self.samplers, "learn": self.learners, "score": self.scorers}[use]

    def buffer_of(self, use: Use) -> str:
        """Which buffer has the weights: one for each use, since learners may be ahead of samplers."""
        return use

    def called(self, call: str, policy: "Policy", seconds: float) -> None:
        """Count the seconds of a call of a model; here they are in those of the phases of a step."""

    def _give_all(self, policy: "Policy", version: Version, buffer: Buffer, use: Use, by: "Policy") -> int | None:
        """Bring a version to all samplers or learners of a model; one that is gone is replaced. Bytes as `_give`."""
        import ray

        while True:
            try:
                return self._give(policy, version, buffer, self.members(use, by), later=use == "sample")
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                self.replace_dead(self.members(use, by))

    def replace_dead(self, members: list[Member]) -> None:
        """Replace those that do not answer."""
        import ray

        for member in list(members):
            try:
                ray.get(member.actor.about.remote(), timeout=min(self.settings.timeout, 10.0))
            except ray.exceptions.RayError as error:
                with self.counting:
                    pools = (self.samplers, self.learners, self.scorers, self.graders)
                    for pool in [own for own in pools if member in own]:  # in none where another thread replaced it
                        self.replace(pool, member, str(error).splitlines()[0])

    def _give(
        self, policy: "Policy", version: Version, buffer: Buffer, members: Sequence[Member], *, later: bool = False
    ) -> int | None:
        """Bring a version to those that do not have it; its bytes, without a base that all had; None for nobody.

        With `later`, those that can read it in this machine's memory, and have a copy and its base, take it with their
        next request: so that nobody waits for a call of its own.
        """
        import ray

        name = version.name
        late = [member for member in members if member.has.get(name) != version.key]
        due = [member for member in late if later and member.is_near and member.bases.get(name) == version.base]
        known = [member for member in due if name in member.due and member.due[name][0].key == version.key]
        for member in due:
            member.due[name] = version, buffer.path
        late = [member for member in late if member not in due]
        if not late:
            return version.bytes if len(known) < len(due) else None
        new = {member: member.bases.get(version.name) != version.base for member in late}
        size = version.bytes + (version.base_bytes if any(new.values()) else 0)
        content = None
        if any(version.name not in member.has for member in late):
            content = without_weights(policy)
        far = None
        if not all(member.is_near for member in late):
            far = put(self.settings, policy, buffer.array[:size])
        calls = []
        for member in late:
            made, given = None if version.name in member.has else content, None if member.is_near else far
            calls.append(member.actor.load.remote(version, buffer.path, new[member], given, made))
        ray.get(calls, timeout=self.settings.timeout)
        for member in late:
            member.has[version.name], member.bases[version.name] = version.key, version.base
            member.due.pop(version.name, None)
        return size

    def _catch_up(self, use: Use, member: Member) -> None:
        """Give a new process the versions that the others of its kind have."""
        policies = dict(self._names.values())
        for (place, name), sent in list(self._sent.items()):
            if place == self.buffer_of(use) and sent.version is not None:
                self._give(policies[plain(name)], sent.version, sent.buffer, [member])

    # For those who sample and learn

    def answered(self, member: Member, seconds: float) -> None:
        """Count an answer of a sampler, and name one that is much slower than the others."""
        with self.counting:
            member.seconds += seconds
            member.answers += 1
            others = [own for own in self.samplers if own is not member and own.answers >= ENOUGH]
            if member.is_slow or member.answers < ENOUGH or not others:
                return
            usual = statistics.median(own.seconds / own.answers for own in others)
            ratio = member.seconds / member.answers / max(usual, 1e-9)
            if ratio > SLOW:
                member.is_slow = True
                self._notes.append(
                    f"sampler {member.number} (process {member.pid}) takes {ratio:.1f} times as long as the others for "
                    "an answer, and so is asked less often"
                )

    def taken(self, member: Member, due: tuple[Version, str] | None, seconds: float) -> None:
        """Note that a member has taken a version with a request; the longest of all counts."""
        if due is None:
            return
        with self.counting:
            name, key = due[0].name, due[0].key
            if member.due.get(name) is due:
                del member.due[name]
                member.has[name] = key
            before, counted = self._taking.get(name, ("", 0.0))
            counted = counted if before == key else 0.0
            self._taking[name] = key, max(counted, seconds)
            self._timing["seconds_weights"] = self._timing.get("seconds_weights", 0.0) + max(seconds - counted, 0.0)

    def keep(self, policies: "Collection[Policy]") -> None:
        """Forget all models but these."""
        alive = {id(policy) for policy in policies}
        with self.counting:
            gone = {key: name for key, (name, _) in self._names.items() if key not in alive}
            for key in gone:
                del self._names[key]
            dropped = {place for place in self._sent if plain(place[1]) in gone.values()}
            for place in dropped:
                self._sent.pop(place).buffer.close()
        for member in (*self.samplers, *self.learners, *self.scorers):
            if gone:
                member.actor.forget.remote(sorted({name for _, name in dropped} | set(gone.values())))

    def take_notes(self) -> list[str]:
        """Notes since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self._notes:
            self._notes.append(text)

    def take_timing(self) -> Mapping[str, float]:
        """Bytes and seconds of changes of weights since the last call."""
        timing, self._timing = self._timing, {}
        return timing

    def meeting_place(self, others: Sequence[Member], *, is_here: bool = True) -> str:
        """Where these find one another, another place each time: a file where all are near, else an address of the
        first of them, which is this process or, where it is not one of them, the first of the others.
        """
        self._groups += 1
        if all(member.is_near for member in others):
            return str(self.folder / f"learners-{self._groups}")
        import ray

        if is_here:
            from posttrain.cluster._actors import free_address

            return free_address()
        found: str = ray.get(others[0].actor.free_address.remote(), timeout=self.settings.timeout)
        return found
