"""Rollouts of a group, the first of which are kept: who is first goes by simulated cost, never by a clock."""

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False)
class Race:
    """Rollouts that wait for one another after each turn, as long as they go on."""

    running: int
    """Rollouts that have not ended."""
    wanted: int
    """Rollouts that are kept."""
    ended: list[float] = field(default_factory=list)
    """Costs of those that ended without a failure."""
    _arrived: "list[asyncio.Future[None]]" = field(default_factory=list)

    async def goes_on(self, cost: float) -> bool:
        """Once all that run have had a turn: whether one of this cost may still be among those that are kept."""
        here = asyncio.get_running_loop().create_future()
        self._arrived.append(here)
        self._release()
        try:
            await here
        finally:
            if here in self._arrived:
                self._arrived.remove(here)
        return sum(other <= cost for other in self.ended) < self.wanted

    def leave(self, cost: float | None) -> None:
        """One has ended; None for one that failed or was dropped."""
        self.running -= 1
        if cost is not None:
            self.ended.append(cost)
        self._release()

    def _release(self) -> None:
        if len(self._arrived) == self.running:
            arrived, self._arrived = self._arrived, []
            for future in arrived:
                if not future.done():
                    future.set_result(None)
