"""One tab: a WebSocket that gets the changes of a session and sends what the user does."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from treadle.apps.web.actions import run_held_request, run_request
from treadle.apps.web.feed import Position
from treadle.apps.web.held_session import HeldSession
from treadle.apps.web.hub import Hub
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import (
    Alive,
    AnyRequest,
    AskForecast,
    Complete,
    Earlier,
    Interrupt,
    ListUpdate,
    Problem,
    Search,
    ShowInbox,
    TabReply,
)
from treadle.apps.web.uploads import Uploads
from treadle.core.errors import TreadleError
from treadle.lib.logger import logger

FRAME_SECONDS = 0.033  # between two updates: a screen shows no more
LIST_FRAME_SECONDS = 0.3
SEND_SECONDS = 30.0  # a tab that does not read for so long is closed
ALIVE_SECONDS = 3.0
MAX_WAITING = 200  # requests of a tab; then it is not read any more


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyRequest).decode


class Tab:
    """Runs until the socket is closed. `have` is the state that the tab has already."""

    def __init__(
        self,
        socket: WebSocket,
        hub: Hub,
        session: LiveSession | HeldSession,
        uploads: Uploads,
        have: Position | None,
    ) -> None:
        self._socket = socket
        self._hub = hub
        self._session = session
        self._uploads = uploads
        self._have = have
        self._changed = asyncio.Event()
        self._list_changed = asyncio.Event()
        self._sending = asyncio.Lock()
        # One after the other: what the user does; what the page looks up, which may take long.
        self._actions: asyncio.Queue[AnyRequest] = asyncio.Queue(MAX_WAITING)
        self._lookups: asyncio.Queue[AnyRequest] = asyncio.Queue(MAX_WAITING)

    async def run(self) -> bool:
        """Whether the session is free now: the tab shows one that another program has closed."""
        stop_session = self._session.feed.listen(self._changed.set)
        stop_list = self._hub.listen(self._list_changed.set)
        self._changed.set()
        self._list_changed.set()
        work = (
            self._send_changes(),
            self._send_list(),
            self._send_alive(),
            self._receive(),
            self._work_off(self._actions),
            self._work_off(self._lookups),
            self._wait(),
        )
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return True
        except (WebSocketDisconnect, TimeoutError, RuntimeError):
            return False  # the tab is gone, or does not read
        finally:
            stop_session()
            stop_list()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        """Until a session that another program has open is free; for others until the end."""
        if isinstance(self._session, HeldSession):
            await self._session.wait_until_free()
        else:
            await asyncio.Event().wait()

    async def _send_changes(self) -> None:
        is_first = True  # a tab that has the newest state already is told so
        while True:
            await self._changed.wait()
            self._changed.clear()
            feed = self._session.feed
            update = feed.make_update(self._have)
            if update is None and is_first and self._have is not None:
                update = feed.confirm(self._have)
            if update is not None:
                await self._send(update)
                self._have = update.position
            is_first = False
            await asyncio.sleep(FRAME_SECONDS)

    async def _send_list(self) -> None:
        last = None
        while True:
            await self._list_changed.wait()
            self._list_changed.clear()
            try:
                html = await self._hub.render_list(self._session.session_id)
            except (TreadleError, OSError) as error:  # of one session: the tab works without
                logger.warning("the list of sessions is not shown: %s", error)
                continue
            update = ListUpdate(html, self._hub.count_waiting())
            if update != last:
                await self._send(update)
                last = update
            await asyncio.sleep(LIST_FRAME_SECONDS)

    async def _send_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            await self._send(Alive())

    async def _receive(self) -> None:
        while True:
            try:
                request = _decode(await self._socket.receive_text())
            except (msgspec.DecodeError, KeyError) as error:  # KeyError: bytes, not a text
                problem = f"the page sent a message that the server does not know: {error}"
                await self._send(Problem(problem))
                continue
            if isinstance(request, Interrupt):
                await self._answer(request)  # it waits for nothing
            elif isinstance(request, Complete | AskForecast | Search | Earlier | ShowInbox):
                await self._lookups.put(request)
            else:
                await self._actions.put(request)

    async def _work_off(self, requests: asyncio.Queue[AnyRequest]) -> None:
        while True:
            await self._answer(await requests.get())

    async def _answer(self, request: AnyRequest) -> None:
        name = str(request.__struct_config__.tag)
        reply: TabReply | None
        try:
            if isinstance(self._session, HeldSession):
                reply = await run_held_request(request, self._hub, self._session)
            else:
                reply = await run_request(request, self._hub, self._session, self._uploads)
        except (TreadleError, OSError, ValueError) as error:
            reply = Problem(str(error), name, request.id)
        except Exception as error:  # noqa: BLE001 - one request must not end the tab
            logger.exception("a request of the page failed")
            reply = Problem(f"{type(error).__name__}: {error}", name, request.id)
        if reply is not None:
            await self._send(reply)

    async def _send(self, message: msgspec.Struct) -> None:
        async with self._sending, asyncio.timeout(SEND_SECONDS):
            await self._socket.send_text(_encode(message).decode())
