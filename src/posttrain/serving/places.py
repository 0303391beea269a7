"""How many requests an endpoint gets at a time: fewer after it has refused some, more again with every answer.

    refused (429, 503): places <- max(1, places / 2), once for all requests that were under way
    answered:           places <- min(most, places + 1 / places), one more after as many answers as there are places

The additive increase and multiplicative decrease of TCP (Jacobson 1988, doi:10.1145/52324.52356). What is answered does
not depend on it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """Places for requests, given in the order in which they are asked for."""

    def __init__(self, most: int) -> None:
        self.most, self.limit = most, float(most)
        self._taken = 0
        self._falls = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place, until the end of the block."""
        if self._waiting or self._taken >= int(self.limit):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn  # the place is taken by then
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif turn.done() and not turn.cancelled():
                    self._give_back()
                raise
        else:
            self._taken += 1
        try:
            yield
        finally:
            self._give_back()

    @property
    def falls(self) -> int:
        """How often the number of places has fallen; a request remembers it to fall once with others."""
        return self._falls

    def fall(self, seen: int) -> None:
        """After a refusal of a request that was sent when there had been `seen` falls."""
        if seen == self._falls:
            self._falls += 1
            self.limit = max(1.0, self.limit / 2.0)

    def rise(self) -> None:
        """After an answer."""
        self.limit = min(float(self.most), self.limit + 1.0 / self.limit)
        self._admit()

    def _give_back(self) -> None:
        self._taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._taken < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
