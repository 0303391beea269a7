"""A hub on loopback: repositories of files, and what is pushed to them."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_a_test"


@dataclass
class Hub:
    """What the hub has, and what it was asked."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    pushed: dict[str, dict[str, bytes]] = field(default_factory=dict)
    created: list[Mapping[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Large files by their SHA-256."""
    fails: bool = False
    """Whether pushes are refused."""
    url: str = ""

    def add(self, name: str, folder: Path) -> None:
        """A repository with the files of a folder, and a program that nobody asked for."""
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.repositories[name] = {**files, "modeling_mine.py": b"raise SystemExit\n", "pytorch_model.bin": b"\x80"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: int, body: bytes | Mapping[str, Any], **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} {path}")
        if path == "api/whoami-v2":
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self._answer(200 if known else 401, {"name": "me", "type": "user", "orgs": []})
            return
        parts = path.split("/")
        if parts[:2] == ["api", "models"] and (files := self.hub.repositories.get("/".join(parts[2:4]))) is not None:
            if parts[4:5] == ["tree"]:
                tree = [
                    {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for n, c in files.items()
                ]
                self._answer(200, json.dumps(tree).encode())
                return
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            self._answer(200, {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": siblings, "tags": []})
            return
        files = self.hub.repositories.get("/".join(parts[:2]), {})
        if len(parts) == 5 and parts[2] == "resolve" and parts[4] in files:
            content = files[parts[4]]
            etag = hashlib.sha256(content).hexdigest()
            self._answer(200, content, ETag=f'"{etag}"', X_Repo_Commit=COMMIT)
            return
        self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")

    def do_POST(self) -> None:
        path, body = unquote(urlsplit(self.path).path).strip("/"), self._body()
        self.hub.requests.append(f"POST {path}")
        if self.hub.fails:
            self._answer(403, {"error": "no right to write"})
        elif path == "api/repos/create":
            self.hub.created.append(json.loads(body))
            self._answer(200, {"url": f"{self.hub.url}/me/mine", "name": "me/mine"})
        elif "/preupload/" in path:
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            self._answer(200, {"files": files})
        elif "/commit/" in path:
            lines = [json.loads(line) for line in body.splitlines()]
            name = "/".join(path.split("/")[2:4])
            self.hub.pushed[name] = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            self._answer(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
        else:
            self._answer(200, {})


@contextmanager
def hub_on_loopback() -> Iterator[Hub]:
    """A hub that runs in a thread."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
