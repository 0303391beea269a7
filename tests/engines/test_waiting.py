"""Waiting for asynchronous work from plain code, also where an event loop runs already, as in a notebook."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.engines import wait_for

VALUE = contextvars.ContextVar("VALUE", default="unset")


def plainly(work: Callable[[], Any]) -> Any:
    return work()


def in_a_loop(work: Callable[[], Any]) -> Any:
    async def cell() -> Any:
        return work()

    return asyncio.run(cell())


@pytest.fixture(params=[plainly, in_a_loop], ids=["plain", "in a loop"])
def place(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    found: Callable[[Callable[[], Any]], Any] = request.param
    return found


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("no such thing")


def test_the_result_comes_back(place: Callable[[Callable[[], Any]], Any]) -> None:
    assert place(lambda: wait_for(double(21))) == 42


def test_an_error_comes_back(place: Callable[[Callable[[], Any]], Any]) -> None:
    with pytest.raises(LookupError, match="no such thing"):
        place(lambda: wait_for(fail()))


def test_work_may_wait_for_other_work() -> None:
    async def outer() -> int:
        return wait_for(double(3)) + wait_for(double(4))

    assert wait_for(outer()) == 14


def test_context_variables_are_seen(place: Callable[[Callable[[], Any]], Any]) -> None:
    async def read() -> str:
        return VALUE.get()

    def work() -> str:
        VALUE.set("mine")
        return wait_for(read())

    assert place(work) == "mine"


def test_an_interrupt_ends_the_work_before_it_is_raised() -> None:
    """Else what was interrupted would go on in the background of a notebook."""
    ended = threading.Event()

    async def endless() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            while True:
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    def interrupted(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_a_loop_that_leaves_signals_alone(lambda: wait_for(endless()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def in_a_loop_that_leaves_signals_alone(work: Callable[[], Any]) -> Any:
    async def cell() -> Any:
        return work()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()
