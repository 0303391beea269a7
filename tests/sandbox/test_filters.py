"""The filter's byte code, run by a small interpreter of our own: what it decides about each call."""

import platform
import struct

import pytest

from posttrain.sandbox import filters
from posttrain.sandbox.filters import ALLOW, ERRNO, KILL, MACHINES

REFUSED, UNKNOWN, NO_FAMILY = ERRNO | 1, ERRNO | 38, ERRNO | 97


def verdict(code: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel would do."""
    values = [*arguments, *[0] * (6 - len(arguments))]
    call = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *values)
    instructions = list(struct.iter_unpack("=HBBI", code))
    at = accumulator = 0
    while True:
        kind, then, otherwise, value = instructions[at]
        at += 1
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("=I", call, value)
        elif kind == 0x06:
            return int(value)
        else:
            passed = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[kind]
            at += then if passed else otherwise


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_verdicts(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    known, code = MACHINES[machine], filters.program()
    calls = known.calls

    def of(name: str, *arguments: int) -> int:
        return verdict(code, known.audit, calls[name], *arguments)

    for name in (
        "ptrace",
        "mount",
        "unshare",
        "setns",
        "bpf",
        "keyctl",
        "io_uring_setup",
        "open_by_handle_at",
        "chroot",
    ):
        assert of(name) == REFUSED, name
    assert of("clone3") == UNKNOWN
    assert of("clone", 17) == ALLOW  # fork
    assert of("clone", 0x003D0F00) == ALLOW  # a thread
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert of("clone", 17 | flag) == REFUSED, hex(flag)
    assert [of("socket", family) for family in (1, 2, 10)] == [ALLOW] * 3
    assert [of("socket", family) for family in (16, 17, 38, 40)] == [NO_FAMILY] * 4
    assert (of("socketpair", 1), of("socketpair", 40)) == (ALLOW, NO_FAMILY)
    assert (of("ioctl", 0, 0x5401), of("ioctl", 0, 0x5412), of("ioctl", 0, 0x541C)) == (ALLOW, REFUSED, REFUSED)
    assert (of("personality", 0), of("personality", 0x0040000)) == (ALLOW, REFUSED)
    assert (of("prlimit64", 0), of("prlimit64", 1)) == (ALLOW, REFUSED)
    assert of("memfd_create") == ALLOW
    assert verdict(filters.program(memory_files=False), known.audit, calls["memfd_create"]) == UNKNOWN
    assert verdict(filters.program(sockets=()), known.audit, calls["socket"], 1) == NO_FAMILY
    assert verdict(code, known.audit, filters.NEWEST) == ALLOW
    assert verdict(code, known.audit, filters.NEWEST + 1) == UNKNOWN
    assert verdict(code, known.audit, 0x40000000) == UNKNOWN
    assert verdict(code, 0x40000003, 1) == KILL  # 32 bits


def test_no_two_calls_have_one_number() -> None:
    for machine in MACHINES.values():
        assert len(set(machine.calls.values())) == len(machine.calls)
    assert len(MACHINES["x86_64"].calls) == len(MACHINES["aarch64"].calls) + 5
