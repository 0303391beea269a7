"""Weights reach another process whole, or not at all."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cluster._actors import Replicas
from posttrain.cluster._members import Member
from posttrain.cluster._session import ENOUGH, Processes
from posttrain.cluster._store import check_room
from posttrain.cluster._weights import (
    Buffer,
    Mapped,
    Sent,
    Shared,
    Version,
    digest_of,
    read,
    size_of,
    tensors_of,
    without_weights,
    write,
    write_at,
)
from posttrain.cluster.ray import Ray
from posttrain.engines.native import Native
from posttrain.errors import RunFailed, UserError
from posttrain.models import LoRA, Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy


@pytest.fixture
def two(tmp_path: Path) -> tuple[Policy, Policy]:
    """Two policies of one shape with other weights, with a matrix that is tied."""
    found = []
    for name in ("one", "other"):
        folder = new_folder(tmp_path / name, layers=1, width=16, heads=2, kv_heads=1, context=32, seed=len(found))
        found.append(load_policy("policy", Model(source=str(folder), dtype="bfloat16"), {}, torch.device("cpu")))
    return found[0], found[1]


def version_of(policy: Policy, **changes: Any) -> Version:
    given = {"name": "p", "number": 3, "digest": digest_of(policy), "bytes": size_of(policy)}
    return Version(**{**given, **changes})


def test_a_version_that_was_written_is_read(two: tuple[Policy, Policy]) -> None:
    one, other = two
    assert digest_of(one) != digest_of(other)
    buffer, mapped = Buffer(), Mapped()
    assert write(one, buffer.room(size_of(one))) == digest_of(one)
    before = [parameter._version for parameter in other.parameters()]
    read(other, mapped.array("p", buffer.path), version_of(one))
    after = [parameter._version for parameter in other.parameters()]
    assert all(a > b for a, b in zip(after, before, strict=True)), "copies in the form for decoding are made anew"
    assert digest_of(other) == digest_of(one) and other.version == 3
    sizes = [2 * p.numel() for p in one.parameters()]
    assert size_of(one) == sum(-(-size // 64) * 64 for size in sizes) > sum(sizes), "a vector of 16 numbers has 32"
    buffer.close()


def test_a_copy_computes_with_the_buffer_itself(two: tuple[Policy, Policy]) -> None:
    """The next version is there when it has been written and its digest compared; what is tied stays tied."""
    one, other = two
    sent, mapped = Sent("p"), Mapped()
    version = sent.now(one)
    source = mapped.array("p", sent.buffer.path)
    strided = next(p for p in other.parameters() if p.dim() == 2 and p.shape[0] != p.shape[1])
    with torch.no_grad():
        strided.set_(strided.detach().t().contiguous().t())  # type: ignore[call-overload]
    shared = Shared(other, source, version)
    shared.take(version, with_base=True)
    assert digest_of(other) == digest_of(one) and other.version == one.version
    held = source.ctypes.data, source.ctypes.data + len(source)
    inside = [held[0] <= p.data_ptr() < held[1] for p in other.parameters()]
    assert inside.count(False) == 1 and not strided.is_contiguous(), "one with its elements in another order is copied"
    assert all(p.data_ptr() % 64 == 0 for p in other.parameters())
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.mul_(2.0)
    one.version += 1
    before, counts = sent.version, [parameter._version for parameter in other.parameters()]
    version = sent.now(one)
    with pytest.raises(RunFailed, match="arrived with the digest"):
        shared.take(before, with_base=True)  # type: ignore[arg-type]
    shared.take(version, with_base=True)
    assert mapped.array("p", sent.buffer.path) is source and digest_of(other) == digest_of(one)
    assert all(p._version > count for p, count in zip(other.parameters(), counts, strict=True))
    with torch.no_grad():
        next(p for p in other.parameters() if p is not strided).zero_()
    assert sent.has(one), "what a reader writes stays with it"
    with pytest.raises(RunFailed, match="arrived with the digest"):
        shared.take(version, with_base=True)
    sent.buffer.close()


def test_a_copy_is_made_without_weights_and_has_those_of_the_version_that_comes(two: tuple[Policy, Policy]) -> None:
    """What is tied stays tied, another order of elements too, and what is trained is trained."""
    pytest.importorskip("ray")
    one, _ = two
    first, *others = one.parameters()
    others[0].requires_grad_(False)
    one.register_parameter("again", others[1])
    last = next(parameter for parameter in reversed(others) if parameter.dim() == 2)
    with torch.no_grad():
        last.set_(last.detach().t().contiguous().t())  # type: ignore[call-overload]
    content = without_weights(one)
    assert memory_of(first) not in content and memory_of(first) in pickle.dumps(one)
    copy = pickle.loads(content)
    forms = [(type(own), own.shape, own.stride(), own.dtype, own.requires_grad) for own in tensors_of(one)]
    assert [(type(own), own.shape, own.stride(), own.dtype, own.requires_grad) for own in tensors_of(copy)] == forms
    assert len(dict(copy.named_parameters(remove_duplicate=False))) == len(forms) + 1
    assert list(copy.tokenizer.encode("ab")) == list(one.tokenizer.encode("ab"))
    sent, mapped = Sent("p"), Mapped()
    version = sent.now(one)
    Shared(copy, mapped.array("p", sent.buffer.path), version).take(version, True)
    assert digest_of(copy) == digest_of(one)
    sent.buffer.close()


def memory_of(tensor: torch.Tensor) -> bytes:
    """Some bytes of a tensor."""
    return bytes(tensor.detach().reshape(-1).view(torch.uint8)[:64].numpy())


def test_a_version_with_another_digest_is_an_error(two: tuple[Policy, Policy]) -> None:
    one, other = two
    content = np.zeros(size_of(one), np.uint8)
    write(one, content)
    with pytest.raises(RunFailed, match="version 3 of p arrived with the digest"):
        read(other, content, version_of(one, digest="0" * 32))


def test_the_same_path_of_another_buffer_is_opened_anew() -> None:
    """The number of a descriptor that was closed is given out again."""
    mapped = Mapped()
    first = Buffer()
    first.room(4)[:] = 1
    path = first.path
    assert mapped.array("p", path).tolist() == [1, 1, 1, 1]
    first.close()
    second = Buffer()
    second.room(4)[:] = 2
    assert second.path == path
    assert mapped.array("p", second.path).tolist() == [2, 2, 2, 2]
    second.close()
    assert not os.path.exists(path)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_others_wrote_into_the_buffer_is_the_next_version_and_is_not_written_again(
    two: tuple[Policy, Policy], frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two owners with some of the trained weights each; a frozen matrix stays."""
    one, other = two
    for policy in two:
        policy.requires_grad_(True)
        next(policy.parameters()).requires_grad_(not frozen)
    sent = Sent("p")
    first, base = sent.now(one), next(one.parameters()).detach().clone()
    given = {name: p.detach() for name, p in other.named_parameters() if p.requires_grad}
    places = sent.places(one)
    assert places.keys() == given.keys() and not sent.has(one), "until all is there"
    for names in (list(given)[::2], list(given)[1::2]):
        write_at(sent.buffer.path, {name: given[name] for name in names}, places)
    sent.arrive(one)
    assert all(torch.equal(p, given[name]) for name, p in one.named_parameters() if name in given)
    assert torch.equal(next(one.parameters()), base) == frozen
    one.version += 1
    with monkeypatch.context() as patched:
        patched.setattr("posttrain.cluster._weights._write", None)
        version = sent.now(one)
    assert version.number == one.version and version.digest != first.digest and version.base == first.base
    shared = Shared(other, Mapped().array("p", sent.buffer.path), version)
    shared.take(version, with_base=True)
    assert digest_of(other) == digest_of(one)
    with torch.no_grad():
        next(p for p in one.parameters() if p.requires_grad).add_(1.0)
    assert not sent.has(one) and sent.now(one).digest != version.digest, "what is changed here is written"
    shared.take(sent.now(one), with_base=True)
    assert digest_of(other) == digest_of(one)
    sent.buffer.close()


@pytest.fixture
def adapters(tmp_path: Path) -> Policy:
    """Adapters on a frozen base."""
    folder = new_folder(tmp_path / "base", layers=1, width=16, heads=2, kv_heads=1, context=32)
    model = Model(source=str(folder), lora=LoRA(rank=2), trained=True)
    return load_policy("policy", model, {}, torch.device("cpu"))


def changed(policy: Policy, trained: bool) -> None:
    """Another version, with other adapters or another base."""
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad == trained:
                parameter.add_(0.5)
    policy.version += 1


class Calls:
    """An actor without Ray, with the bytes of what it is sent from another machine."""

    def __init__(self) -> None:
        self.own, self.sent = Replicas.__new__(Replicas), list[tuple[int, bool]]()
        self.own.policies, self.own._bases, self.own._keys, self.own._shared = {}, {}, {}, {}
        self.load = self

    def remote(self, version: Version, path: str, with_base: bool, far: Any, content: bytes | None) -> None:
        self.sent.append((len(far), with_base))
        self.own.load(version, path, with_base, far.copy(), content)


def test_adapters_are_sent_without_their_base_to_those_that_have_it(
    adapters: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler that is replaced, and all when the base is another one, get it anew."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "put", lambda content: content)
    monkeypatch.setattr(ray, "get", lambda calls, timeout=None: calls)
    session = Processes(Ray(samplers=2), Native(), 0, tmp_path)
    session.samplers = [Member(Calls(), number, is_near=False) for number in range(2)]
    monkeypatch.setattr(session, "admit", lambda members: None)
    whole, part = size_of(adapters), sum(p.nbytes for p in adapters.parameters() if p.requires_grad)
    part += sum(buffer.nbytes for buffer in adapters.buffers())
    assert 0 < part < whole / 4

    def published() -> float:
        version = session.publish(adapters, "sample")
        for member in session.samplers:
            assert digest_of(member.actor.own.policies[version.name]) == digest_of(adapters)
        return session.take_timing().get("weight_bytes", 0.0)

    assert published() == whole and published() == 0.0
    changed(adapters, trained=True)
    assert published() == part
    session.samplers[1] = Member(Calls(), 1, is_near=False)
    session._catch_up("sample", session.samplers[1])
    assert session.samplers[1].actor.sent == [(whole, True)]
    assert published() == 0.0
    changed(adapters, trained=True)
    assert published() == part and session.samplers[1].actor.sent[-1] == (part, False)
    changed(adapters, trained=False)
    assert published() == whole
    adapters.version -= 1  # whatever its number is
    changed(adapters, trained=False)
    assert published() == whole
    with pytest.raises(RunFailed, match="arrived without its base"):
        version = session.publish(adapters, "sample")
        session.samplers[0].actor.own._bases.clear()
        session.samplers[0].actor.own.load(version, "", False)
    for sent in session._sent.values():
        sent.buffer.close()


def test_what_is_larger_than_the_object_store_is_refused(two: tuple[Policy, Policy]) -> None:
    """Ray would write the rest to the disk without a word."""
    check_room(Ray(store_mb=1), two[0], 1 << 20)
    with pytest.raises(UserError, match=r"has 5 MiB, and Ray's object store, .* 1: .*set cluster\.store_mb=6 or more"):
        check_room(Ray(store_mb=1), two[0], 5 << 20)


def test_a_sampler_that_takes_much_longer_than_the_others_is_named_once(tmp_path: Path) -> None:
    session = Processes(Ray(samplers=3), Native(), 0, tmp_path)
    session.samplers = [Member(None, number, pid=100 + number) for number in range(3)]
    for _ in range(ENOUGH):
        for member, seconds in zip(session.samplers, (0.1, 0.3, 1.0), strict=True):
            session.answered(member, seconds)
    for _ in range(3):
        session.answered(session.samplers[2], 1.0)
    (note,) = session.take_notes()
    assert note.startswith("sampler 2 (process 102) takes 5.0 times as long as the others")


class Place:
    """A place that is there, for all that Ray has noticed."""

    def wait(self, seconds: float) -> bool:
        return True


def without_ray(session: Processes, monkeypatch: pytest.MonkeyPatch, starts: list[bool]) -> list[float]:
    """Processes that start or do not, one after the other; the waits between them."""
    ray = pytest.importorskip("ray")
    waits, now = list[float](), [0.0]

    def check(member: Member) -> None:
        if not starts.pop(0):
            raise ray.exceptions.ActorDiedError()
        member.pid = 7

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("posttrain.cluster._session.time.monotonic", lambda: now[0])
    monkeypatch.setattr("posttrain.cluster._session.time.sleep", sleep)
    monkeypatch.setattr(session, "_start", lambda kind, number, place=None: Member(None, number, place=place))
    monkeypatch.setattr(session, "_check", check)
    monkeypatch.setattr(session, "_new_place", lambda dead: setattr(dead, "place", Place()))
    session.samplers = [Member(None, number, pid=number + 1, place=Place()) for number in range(2)]
    return waits


def test_a_process_that_is_not_there_on_a_machine_that_is_gone_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray gives places on it until it has noticed: such a start is no death, and is repeated ever more rarely."""
    session = Processes(Ray(samplers=2), Native(), 0, tmp_path)
    starts = [False] * 6 + [True]
    without_ray(session, monkeypatch, starts)
    session.replace(session.samplers, session.samplers[1], "the link was cut")
    assert [member.number for member in session.samplers] == [0]
    tried, clock = list[float](), [0.0]
    monkeypatch.setattr("posttrain.cluster._session.time.monotonic", lambda: clock[0])
    while starts and clock[0] < 100:
        before = len(starts)
        session.admit(session.samplers)
        if len(starts) < before:
            tried.append(clock[0])
        clock[0] += 1.0
    assert tried == [1, 4, 11, 26, 57, 120][: len(tried)] and len(tried) >= 5
    clock[0] = 200.0
    session.admit(session.samplers)
    assert [(member.number, member.pid, member.replaced) for member in session.samplers] == [(0, 1, 0), (1, 7, 1)]
    notes = session.take_notes()
    assert "sampler 1 (process 2) ended, and another did not start where it had a place" in "".join(notes)


def test_the_last_sampler_is_started_again_for_two_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Processes(Ray(samplers=2), Native(), 0, tmp_path)
    starts = [False] * 5 + [True]
    waits = without_ray(session, monkeypatch, starts)
    del session.samplers[0]
    session.replace(session.samplers, session.samplers[0], "the link was cut")
    assert not starts and waits == [1.0] * 5 and session.samplers[0].pid == 7
    starts += [False] * 1000
    with pytest.raises(RunFailed, match="sampler 1 could not be started again"):
        session.replace(session.samplers, session.samplers[0], "the link was cut")
    assert len(waits) == 5 + 121
