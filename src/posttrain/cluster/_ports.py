"""Ports of this machine: a free one, those that processes listen on, and whether they answer from elsewhere."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

LISTENS = "0A"
"""State of a socket in the kernel's tables."""

_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""An empty frame of settings: length, type 4, flags, stream."""


@dataclass(frozen=True, order=True)
class Port:
    """A port that a process listens on."""

    number: int
    address: str
    pid: int

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it, as far as the address decides."""
        return not ipaddress.ip_address(self.address).is_loopback


def free_port(address: str) -> int:
    """A port of an address that nothing listens on."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as found:
        found.bind((address, 0))
        port: int = found.getsockname()[1]
    return port


def listening(pids: Collection[int]) -> list[Port]:
    """The ports that these processes listen on, of this user on this machine."""
    owner: dict[str, int] = {}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(link)
                if target.startswith("socket:["):
                    owner[target[8:-1]] = pid
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and words[9] in owner:
                address, _, port = words[1].rpartition(":")
                found.append(Port(number=int(port, 16), address=_address(address), pid=owner[words[9]]))
    return sorted(found)


def _address(coded: str) -> str:
    """An address of the kernel's tables: words of four bytes in the order of the machine."""
    raw = b"".join(bytes.fromhex(coded[i : i + 8])[::-1] for i in range(0, len(coded), 8))
    return str(ipaddress.ip_address(raw))


def answers(address: str, port: int, seconds: float = 1.0) -> bool:
    """Whether something accepts a connection."""
    try:
        with socket.create_connection((address, port), seconds):
            return True
    except OSError:
        return False


def speaks_grpc(address: str, port: int, seconds: float = 3.0) -> bool:
    """Whether what answers there is a server of gRPC, as Ray's are: it greets with settings of HTTP/2 (RFC 9113, 3.4).

    Ray itself waits for minutes for one that does not, and then ends the process.
    """
    with contextlib.suppress(OSError), socket.create_connection((address, port), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
        head = connection.recv(len(_SETTINGS), socket.MSG_WAITALL)
        return len(head) == len(_SETTINGS) and head[3] == _SETTINGS[3]
    return False


def own_address() -> str:
    """An address of this machine by which others reach it; the loopback address where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


def open_ports(pids: Collection[int]) -> list[Port]:
    """The ports on which these processes answer from another address of this machine; none where it has no other."""
    here = own_address()
    if ipaddress.ip_address(here).is_loopback:
        return []
    return [port for port in listening(pids) if answers(here, port.number)]
