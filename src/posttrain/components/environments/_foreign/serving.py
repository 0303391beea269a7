"""The worker's side: performs the orders of one episode after the other on an adapter."""

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from posttrain.components.environments._foreign import (
    DOWN,
    PACKAGES,
    Adapter,
    Seen,
    ServerDown,
    make,
    seed_draws,
    split,
)
from posttrain.errors import UserError
from posttrain.grading.workers import children


def open_environment(argument: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """What performs orders; what the environment prints goes nowhere. Raises `UserError`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    with suppress(ModuleNotFoundError):  # an error when the environment is made; imports count in no step
        importlib.import_module(PACKAGES.get(split(argument["source"])[0], "json"))
    return Served(argument).perform


def digest(tools: Sequence[Mapping[str, Any]]) -> str:
    """A short name of some schemas of tools."""
    return hashlib.blake2b(json.dumps(tools, sort_keys=True).encode(), digest_size=8).hexdigest()


def _tools(adapter: Adapter) -> list[dict[str, Any]]:
    return [dict(tool.schema) for tool in getattr(adapter, "tools", {}).values()]


class Served:
    """An environment of a source, anew for each episode."""

    def __init__(self, argument: Mapping[str, Any]) -> None:
        self._argument = dict(argument)
        self._limit = int(self._argument.pop("characters"))
        self._adapter: Adapter | None = None
        self._over = False

    def perform(self, order: Mapping[str, Any]) -> Any:
        """The answer to an order; ``down`` with the reason where a server does not come up."""
        try:
            return self._performed(order)
        except ServerDown as error:
            return {DOWN: str(error)}

    def _performed(self, order: Mapping[str, Any]) -> Any:
        what = order["order"]
        if what == "describe":
            return self._describe()
        if what == "reset":
            self._close()
            self._over = False
            seed_draws(order["seed"])
            self._adapter = self._made()
            seen = self._adapter.reset(order["seed"], order["fields"])
            seed_draws(order["chance"])
            self._adapter.reseed(order["chance"])
            return {**self._plain(seen), "tools": digest(_tools(self._adapter))}
        if what == "close":  # also an episode whose server did not come up
            self._close()
            return len(children())
        assert self._adapter is not None, "an episode begins with a reset"
        if what == "step":
            if self._over:  # some libraries answer all the same
                raise RuntimeError("the episode is over")
            return self._plain(self._adapter.step(order["action"]))
        if what == "reply":
            return self._plain(self._adapter.reply(order["text"]))
        if what == "restore":
            self._over = False
            return self._adapter.restore(order["state"])
        if what not in ("value", "snapshot", "solution", "example"):
            raise ValueError(f"no order '{what}'")
        return getattr(self._adapter, what)()

    def _made(self) -> Adapter:
        library, name = split(self._argument["source"])
        try:
            return make(**self._argument)
        except ModuleNotFoundError as error:
            if library in PACKAGES and error.name == PACKAGES[library].partition(".")[0]:
                extra = library.replace("_", "-")
                raise UserError(
                    f"the environment '{name}' is one of {library}, which is not installed: pip install "
                    f"'posttrain[{extra}]'"
                ) from None
            raise

    def _describe(self) -> dict[str, Any]:
        adapter = self._made()
        try:
            tools = _tools(adapter)
            fields = {name: needed for name, needed in getattr(adapter, "fields", {}).items() if name != "seed"}
            return {"tools": tools, "fields": fields}
        finally:
            adapter.close()

    def _close(self) -> None:
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close()

    def _plain(self, seen: Seen) -> dict[str, Any]:
        self._over = seen.terminated or seen.truncated
        if not isinstance(seen.text, str):
            raise TypeError(f"the observation is a {type(seen.text).__name__}; a text is needed")
        if len(seen.text) > self._limit:
            cut = len(seen.text) - self._limit
            seen.text = f"{seen.text[: self._limit]}[{cut} characters were cut]"
        return {**vars(seen), "legal": None if seen.legal is None else list(seen.legal)}
