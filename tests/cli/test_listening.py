"""Addresses that are printed can be opened."""

import socket
from collections.abc import Iterator

import pytest

from posttrain.cli._listening import reach_of, url_of


@pytest.fixture(params=["0.0.0.0", "::", "127.0.0.1"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        with socket.socket(family) as made:
            made.bind((request.param, 0))
            made.listen()
            yield made
    except OSError:
        pytest.skip(f"this machine has no {request.param}")


def test_all_addresses_are_printed_as_one_that_can_be_opened(listening: socket.socket) -> None:
    where, port = listening.getsockname()[:2]
    expected = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "127.0.0.1": "127.0.0.1"}[where]
    assert url_of(listening) == f"http://{expected}:{port}"
    others = f", and on every address of this machine: http://{socket.gethostname()}:{port}"
    assert reach_of(listening) == ("" if where == "127.0.0.1" else others)
    with socket.create_connection((expected.strip("[]"), port), timeout=10):
        pass
