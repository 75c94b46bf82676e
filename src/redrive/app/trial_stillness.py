"""Lets several act at the same time, and one wait until nobody does.

Knows asyncio. For the moment in which a path of a run's workspace is looked up: nobody may swap it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stillness:
    """Who moves, and who needs that nobody does; in one event loop."""

    def __init__(self) -> None:
        self._n_moving = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Act; waits while someone needs stillness."""
        async with self._changed:
            self._n_moving += 1
        try:
            yield
        finally:
            async with self._changed:
                self._n_moving -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Wait until nobody acts, and let nobody begin meanwhile."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._n_moving)
            yield
