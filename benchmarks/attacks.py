"""Attack a server, and measure how other clients are served meanwhile.

    python -m benchmarks.attacks                     a table: for each attack latencies of /health, memory, log lines

Each attack runs against a server of its own, started with 64 descriptors. Latencies are of /health, with a new
connection each time, before the attack and during it; memory is resident memory in MiB: before, at most, and three
seconds after. With `--source` the code of another commit is attacked.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

PAUSE = 3.0
"""Seconds before memory is measured, before and after an attack."""
PROMPTS = json.dumps({"prompt": ["a"] * 5000, "n": 128, "stream": True}).encode()
LONG = json.dumps({"prompt": "12+5= " * 600_000}).encode()
LONGER = json.dumps({"prompt": "12+5= " * 1_700_000}).encode()
NUMBERS = json.dumps({"prompt": [1] * 500_000}).encode()
MOST = json.dumps({"prompt": ["1+1="] * 8, "n": 128, "max_tokens": 400, "temperature": 3.0, "logprobs": 0}).encode()


def request(body: bytes, *, length: int | None = None) -> bytes:
    """A request to complete, as bytes."""
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


class Attack:
    """Connections that a thread keeps making until it is stopped."""

    def __init__(self, port: int, data: bytes, *, read: bool, most: int) -> None:
        self._port, self._data, self._read, self._most = port, data, read, most
        self._open: list[socket.socket] = []
        self.stop = threading.Event()

    def run(self) -> None:
        """Send, and read or not."""
        while not self.stop.is_set():
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                one.settimeout(5)
                one.sendall(self._data)
                if self._read:
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(2**16) and not self.stop.is_set():
                        pass
                    one.close()
                else:
                    self._open.append(one)
            while len(self._open) > self._most:
                self._open.pop(0).close()
            time.sleep(0.005)
        for one in self._open:
            one.close()


ATTACKS: dict[str, tuple[bytes, bool, int]] = {
    "nothing": (b"", True, 0),
    "idle connections": (b"", False, 200),
    "half-sent headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", False, 200),
    "half-sent bodies": (request(b"{", length=1000), False, 200),
    "garbage": (b"\x00\x01\r\n\r\n", True, 0),
    "prompt of 3.6 MB": (request(LONG), True, 0),
    "prompt of 10 MB": (request(LONGER), True, 0),
    "500,000 token ids": (request(NUMBERS), True, 0),
    "5,000 prompts x n=128": (request(PROMPTS), True, 0),
    "1,024 completions, unread": (request(MOST), False, 20),
    "clients that go away": (request(json.dumps({"prompt": "1+1=", "n": 64, "stream": True}).encode()), False, 0),
}
"""What is sent, whether the answer is read, and how many connections are kept open."""


@contextlib.contextmanager
def server(log: Path, source: Path | None, memory: int) -> Iterator[tuple[int, int, subprocess.Popen[str]]]:
    """A server with 64 descriptors: its port and the number of its process."""
    limits = f"ulimit -n 64; ulimit -v {memory * 2**20}"
    command = f"{limits}; exec {sys.executable} -m posttrain serve pebble --port 0 --json"
    environment = {**os.environ, "PYTHONPATH": str(source)} if source else None
    with log.open("w") as errors:
        process = subprocess.Popen(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        assert process.stdout is not None
        try:
            text = ""
            while not text.endswith("}\n"):
                line = process.stdout.readline()
                assert line, log.read_text()
                text += line
            announced = json.loads(text)
            yield int(announced["url"].split(":")[2].split("/")[0]), announced["pid"], process
        finally:
            process.kill()
            process.wait()


def resident(pid: int) -> float:
    """Resident memory in MiB; none of a process that has ended."""
    pages = int((Path(f"/proc/{pid}/statm").read_text().split() or ["", "0"])[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def health(port: int) -> float:
    """Seconds until the server reports that it is well; infinite where it does not within ten seconds."""
    began = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return time.perf_counter() - began if one.recv(2**16).startswith(b"HTTP/1.1 200") else float("inf")
    except OSError:
        return float("inf")


def ordinary(port: int, wanted: dict[str, Any]) -> None:
    """A request whose answer is read, as of a client that means no harm."""
    one = HTTPConnection("127.0.0.1", port, timeout=60)
    one.request("POST", "/v1/completions", json.dumps(wanted), {"Content-Type": "application/json"})
    answer = one.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    one.close()


def attacked(name: str, seconds: float, source: Path | None, memory: int) -> dict[str, Any]:
    """What was measured in an attack."""
    data, read, most = ATTACKS[name]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "log", source, memory) as (port, pid, process):
        for _ in range(20):
            health(port)
        for wanted in ({"prompt": "1+1="}, {"prompt": ["1+1="] * 8, "n": 32, "logprobs": 0}) * 3:
            ordinary(port, {**wanted, "max_tokens": 64, "temperature": 3.0})
        time.sleep(PAUSE)
        quiet = [health(port) for _ in range(100)]
        before, top, waits = resident(pid), 0.0, []
        attack = Attack(port, data, read=read, most=most)
        thread = threading.Thread(target=attack.run if name != "nothing" else lambda: None, daemon=True)
        thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            waits.append(health(port))
            top = max(top, resident(pid)) if process.poll() is None else top
            time.sleep(0.01)
        attack.stop.set()
        thread.join(30)
        time.sleep(PAUSE)
        found = {
            "attack": name,
            "before": latencies(quiet),
            "during": latencies(waits),
            "mib": {"before": before, "most": top, "after": resident(pid) if process.poll() is None else None},
            "answers_after": process.poll() is None and health(port) < 10,
        }
        found |= ended(port, process)
        lines = (Path(folder) / "log").read_text(errors="replace").splitlines()
        return {**found, "log_lines": len(lines), "causes": sorted({line[:100] for line in lines})[:5]}


def latencies(waits: list[float]) -> dict[str, float | None]:
    """Median, 99th percentile and worst in milliseconds; None for no answer within ten seconds."""
    ordered = sorted(waits)
    at = {"median": len(ordered) // 2, "p99": min(len(ordered) - 1, int(0.99 * len(ordered))), "worst": -1}
    return {name: None if ordered[i] == float("inf") else 1000 * ordered[i] for name, i in at.items()}


def ended(port: int, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """How a server ends after SIGTERM, while a body is half sent; or how it has ended."""
    if process.poll() is not None:
        return {"code": process.returncode, "seconds_to_end": None}
    with contextlib.suppress(OSError):
        half = socket.create_connection(("127.0.0.1", port), timeout=5)
        half.sendall(request(b"{", length=1000))
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    try:
        return {"code": process.wait(30), "seconds_to_end": time.perf_counter() - began}
    except subprocess.TimeoutExpired:
        return {"code": None, "seconds_to_end": None}


def outcome(found: dict[str, Any]) -> str:
    """What became of the server, in words."""
    if found["mib"]["after"] is None:
        return f"it died (code {found['code']})"
    if not found["answers_after"]:
        return "it answers no more"
    if found["during"]["worst"] is None:
        return "some had no answer for 10 s"
    return "all were served"


def row(found: dict[str, Any]) -> list[str]:
    """A row of the table."""

    def text(value: float | None) -> str:
        return "none" if value is None else f"{value:.0f}"

    quiet, during = (" / ".join(text(found[when][name]) for name in ("median", "p99")) for when in ("before", "during"))
    memory = [text(found["mib"][when]) for when in ("before", "most", "after")]
    end = "none in 30 s" if found["seconds_to_end"] is None else f"{found['seconds_to_end']:.1f} s"
    worst = text(found["during"]["worst"])
    return [found["attack"], quiet, during, worst, *memory, str(found["log_lines"]), end, outcome(found)]


HEAD = [
    *("attack", "ms before: median / p99", "ms during: median / p99", "worst", "MiB before", "at most", "after"),
    *("log lines", "SIGTERM", "outcome"),
]


COMMAND = "python -m benchmarks.attacks --before before.json --write docs/measured/trust/server_attacks.json"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack")
    parser.add_argument("--only", help="one attack")
    parser.add_argument("--source", type=Path, help="folder of the package to attack, as of another commit")
    parser.add_argument("--memory", type=int, default=64, help="GiB of addresses that a server may have")
    parser.add_argument("--name", default="", help="of that commit")
    parser.add_argument("--raw", type=Path, help="file for what was measured")
    parser.add_argument("--before", type=Path, nargs="*", default=[], help="such files of other commits")
    parser.add_argument("--write", type=Path, help="file for a part of docs/trust.md, with tables of those files too")
    given = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    measured = []
    for name in [given.only] if given.only else ATTACKS:
        measured.append(attacked(name, given.seconds, given.source, given.memory))
        print(f"| {' | '.join(row(measured[-1]))} |", flush=True)
    content = {"seconds": given.seconds, "source": given.source and given.name, "attacks": measured}
    if given.raw:
        given.raw.write_text(json.dumps(content, indent=1) + "\n")
    if given.write:
        others = [json.loads(path.read_text()) for path in given.before]
        new = part([content, *others])
        old = json.loads(given.write.read_text())["tables"] if given.write.is_file() else []
        given.write.write_text(
            json.dumps({**new, "tables": joined(old, new["tables"])}, indent=2, ensure_ascii=False) + "\n"
        )


def joined(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tables of former times with what was measured now: other attacks and other commits stay."""
    tables = {table["caption"].partition(",")[0]: table for table in old}
    for table in new:
        code = table["caption"].partition(",")[0]
        rows = {row[0]: row for row in [*tables.get(code, {"rows": []})["rows"], *table["rows"]]}
        tables[code] = {**table, "rows": [rows[name] for name in ATTACKS if name in rows]}
    return list(tables.values())


def part(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """A part of docs/trust.md: a table for each version of the code."""
    tables = []
    for content in measured:
        code = f"At commit {content['source']}" if content["source"] else "Now"
        caption = f"{code}, each attack for {content['seconds']:.0f} s:"
        tables.append({"caption": caption, "columns": HEAD, "rows": [row(found) for found in content["attacks"]]})
    return {"title": "Attacks on a server", "command": COMMAND, "tables": tables}


if __name__ == "__main__":
    main()
