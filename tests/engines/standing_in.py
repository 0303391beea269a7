"""Stand-ins for servers of other programs, each on a port of its own in a thread of this process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn

from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.serving.stand_in import Program, StandIn


def served(folder: Path) -> Any:
    """What samples from the model in a folder."""
    return Native(slots=16).serve(load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")), 0)


class Running:
    """A stand-in that answers on a port."""

    def __init__(self, folder: Path, program: Program, port: int = 0) -> None:
        self.service = StandIn(served(folder), "stand-in", program, load=served)
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(self.service.app(), log_level="error", lifespan="off", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        """Routes of the requests so far."""
        return [entry["path"] for entry in self.service.requests_seen]

    def end(self) -> None:
        """Answer nothing from now on."""
        self._server.force_exit = self._server.should_exit = True
        self._thread.join()
        self._socket.close()


@contextmanager
def standing_in(folder: Path, program: Program, count: int = 2) -> Iterator[list[Running]]:
    """Some of them, for a while."""
    running = [Running(folder, program) for _ in range(count)]
    try:
        yield running
    finally:
        for one in running:
            one.end()
