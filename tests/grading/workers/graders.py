"""Graders that misbehave on request."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def make(settings: Any) -> Callable[[Any], Any]:
    return {**BEHAVIOURS}[settings] if settings in BEHAVIOURS else behave


def behave(argument: Any) -> Any:
    name, *rest = argument if isinstance(argument, list) else ["echo", argument]
    return BEHAVIOURS[name](*rest)


def count_up() -> int:
    global counted
    counted += 1
    return counted


counted = 0


def open_groups() -> list[str]:
    """Make control groups, as a grader that runs programs does; the folders."""
    from posttrain.sandbox.cgroups import open_home

    return [str(path.parent) for path in open_home().group("lane").processes]


def spin() -> None:
    while True:
        pass


def crash(number: int) -> None:
    os.kill(os.getpid(), number)


def raising(text: str) -> None:
    raise KeyError(text)


def child() -> int:
    return subprocess.Popen(["sleep", "300"]).pid


def child_and_spin(file: str) -> None:
    with open(file, "w") as written:
        written.write(str(child()))
    spin()


def once_killed(file: str) -> str:
    """Is killed from outside the first time, and answers the second."""
    if not os.path.exists(file):
        open(file, "w").close()
        crash(signal.SIGKILL)
    return "answered"


def failing(_: Any) -> None:
    raise AssertionError("never called")


BEHAVIOURS: dict[str, Callable[..., Any]] = {
    "echo": lambda value: value,
    "spin": spin,
    "open groups": open_groups,
    "in one C call": lambda: 9 ** (9**9),
    "sleep": lambda: time.sleep(300),
    "memory": lambda: len(bytearray(10**11)),
    "crash": crash,
    "leave": lambda: os._exit(3),
    "exit": lambda: sys.exit(3),
    "raise": raising,
    "count": count_up,
    "child_and_spin": child_and_spin,
    "once_killed": once_killed,
    "pid": os.getpid,
    "parent": os.getppid,
    "modules": lambda: sorted(name for name in sys.modules if "." not in name),
    "unspeakable": lambda: object(),
    "nan": lambda: float("nan"),
}


def not_loading(_: Any) -> None:
    raise ImportError("no such library")
