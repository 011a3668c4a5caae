"""The routes of the page, over one Hub. Everything passes access.py first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from treadle.apps.conversation.attachments import AttachmentError
from treadle.apps.conversation.costs import load_cost_report
from treadle.apps.fleet.store_address import DEFAULT_STORE
from treadle.apps.pages.cost import render_cost_page
from treadle.apps.pages.frame import STATIC, render_work_page
from treadle.apps.pages.session_html import render_session_html
from treadle.apps.web.access import AccessGuard, PageAccess
from treadle.apps.web.feed import PREVIEW_FEED, Position
from treadle.apps.web.fleet_pages import FleetPages
from treadle.apps.web.held_session import HeldSession
from treadle.apps.web.hub import Hub
from treadle.apps.web.inspection import Inspections, StepRequest
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import GoTo, Problem
from treadle.apps.web.request_body import read_body
from treadle.apps.web.tab import Tab
from treadle.apps.web.trials import TrialChoice, TrialRequest, Trials
from treadle.apps.web.uploads import Uploads
from treadle.core.errors import ConfigError, SessionBusy, SessionNotFound, TreadleError
from treadle.lib.logger import logger
from treadle.lib.tasks import cancel_all, supervise

_T = TypeVar("_T")
MAX_TABS = 100
MAX_TRIAL_BYTES = 1 << 17
PERIOD_DAYS = {"7d": 7, "30d": 30, "90d": 90, "all": 0}


def build_app(hub: Hub, access: PageAccess, fleet: str = DEFAULT_STORE) -> ASGIApp:
    """The application with its guard. `fleet` is the address of the fleet that it shows."""
    pages, fleet_pages = Pages(hub), FleetPages(fleet)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        services = (hub.run_reaper, hub.run_list_watch)
        tasks = [asyncio.create_task(supervise(run, _tell_failure)) for run in services]
        try:
            yield
        finally:
            await cancel_all(tasks)
            await pages.trials.aclose()
            await hub.aclose()
            await fleet_pages.aclose()

    routes = [
        Route("/", pages.show_start),
        Route("/new", pages.create_session, methods=["POST"]),
        Route("/session/{session}", pages.show_session),
        Route("/inspect/", pages.show_inspection),
        Route("/inspect/{session}", pages.show_inspection),
        Route("/inspect/{session}/step", pages.show_step),
        Route("/compare/{session}", pages.show_comparison),
        Route("/session/{session}/picture/{picture}", pages.show_picture),
        Route("/cost", pages.show_cost),
        *fleet_pages.routes,
        Route("/export/{session}", pages.export_session),
        Route("/fork/{session}", pages.fork_session, methods=["POST"]),
        Route("/trial/{session}", pages.show_trial, methods=["GET", "POST", "PUT", "DELETE"]),
        Route("/upload", pages.receive_upload, methods=["POST"]),
        WebSocketRoute("/session/{session}/socket", pages.connect),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers: dict[Any, Any] = dict.fromkeys((TreadleError, OSError, Exception), show_problem)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return AccessGuard(app, access)


def _tell_failure(error: Exception) -> None:
    logger.error("a task of the server failed and is started again", exc_info=error)


async def show_problem(request: Request, error: Exception) -> Response:
    """The one answer to everything that went wrong: a page for a person, JSON for a script."""
    is_known = isinstance(error, TreadleError | OSError | AttachmentError)
    text = str(error) if is_known else f"{type(error).__name__}: {error}"
    code = 500 if not is_known else 404 if request.method == "GET" else 400
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(render_work_page("", problem=text), code)
    return JSONResponse({"problem": text}, code)


class ForkRequest(msgspec.Struct, frozen=True):
    """`before_turn` is the number of a turn, or None for all of the session."""

    before_turn: str | None = None


class Pages:
    """The handlers of the routes."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._uploads = Uploads()
        self._tabs = 0
        self._inspections = Inspections(hub.library)
        self.trials = Trials(hub.library)

    async def show_start(self, request: Request) -> Response:
        """A new session in the folder that the server was started for."""
        latest = self._hub.library.find_latest(self._hub.folder)
        if latest is None:
            session = await self._hub.create()
            return RedirectResponse(f"/session/{session.session_id}", 303)
        return RedirectResponse(f"/session/{latest.name}", 303)

    async def create_session(self, request: Request) -> Response:
        folder = (await read_body(request)).decode(errors="replace")
        session = await self._hub.create(folder.strip())
        return JSONResponse({"session": session.session_id})

    async def show_session(self, request: Request) -> Response:
        """The frame of the page; its socket opens the session."""
        name = await self._hub.find_name(request.path_params["session"])
        return HTMLResponse(render_work_page(name))

    async def show_inspection(self, request: Request) -> Response:
        render, wanted = self._inspections.render_page, _read_step(request)
        session = self._get_session(request)
        return HTMLResponse(await asyncio.to_thread(render, session, wanted))

    def _get_session(self, request: Request) -> str:
        """The session of the address, or the last one of the folder."""
        latest = self._hub.library.find_latest(self._hub.folder)
        return str(request.path_params.get("session") or (latest.name if latest else "none"))

    async def show_step(self, request: Request) -> Response:
        session = request.path_params["session"]
        render, wanted = self._inspections.render_step, _read_step(request)
        parts = await asyncio.to_thread(render, session, wanted)
        return Response(msgspec.json.encode(parts), media_type="application/json")

    async def show_comparison(self, request: Request) -> Response:
        session, other = request.path_params["session"], request.query_params.get("with", "")
        render = self._inspections.render_comparison
        return HTMLResponse(await asyncio.to_thread(render, session, other))

    async def show_picture(self, request: Request) -> Response:
        """A picture of the conversation, by the name that the page was told."""
        session = await self._open(request.path_params["session"], None)
        image = session.feed.find_picture(request.path_params["picture"])
        if image is None:
            raise ConfigError("there is no such picture")
        headers = {"Cache-Control": "private, max-age=86400"}
        return Response(image.data, media_type=image.media_type, headers=headers)

    async def show_cost(self, request: Request) -> Response:
        period = request.query_params.get("since", "30d")
        days = PERIOD_DAYS.get(period, PERIOD_DAYS["30d"])
        since = time.time() - days * 86_400 if days else None
        library = self._hub.library
        report = await asyncio.to_thread(load_cost_report, since=since, library=library)
        return HTMLResponse(render_cost_page(report, period))

    async def export_session(self, request: Request) -> Response:
        """The session as one HTML file."""
        path = self._hub.library.find(request.path_params["session"])
        summary = self._hub.library.get_summary(path)
        html = await asyncio.to_thread(render_session_html, summary, path)
        name = f'attachment; filename="session-{path.name}.html"'
        return HTMLResponse(html, headers={"Content-Disposition": name})

    async def fork_session(self, request: Request) -> Response:
        wanted = await _decode_body(request, ForkRequest)
        session = await self._hub.fork(request.path_params["session"], wanted.before_turn)
        return JSONResponse({"session": session.session_id})

    async def show_trial(self, request: Request) -> Response:
        """The dialog of `treadle whatif`, after its start, a choice, or its end."""
        session, given = request.path_params["session"], request.query_params
        match request.method:
            case "POST":
                wanted = await _decode_body(request, TrialRequest, MAX_TRIAL_BYTES)
                await self.trials.start(session, wanted)
            case "PUT":
                await self.trials.keep(session, await _decode_body(request, TrialChoice))
            case "DELETE":
                await self.trials.stop(session)
        turn, call_id, model = (given.get(name, "") for name in ("turn", "call", "model"))
        html = await asyncio.to_thread(self.trials.render, session, turn, call_id, model)
        return JSONResponse({"html": html})

    async def receive_upload(self, request: Request) -> Response:
        """The bytes of a file; the answer is the id that a message names."""
        name = request.query_params.get("name", "file")[:200]
        return JSONResponse({"id": await self._uploads.receive(name, request.stream())})

    async def connect(self, socket: WebSocket) -> None:
        await socket.accept()
        if self._tabs >= MAX_TABS:
            await self._refuse(socket, f"more than {MAX_TABS} tabs are open; close one")
            return
        have = _read_position(socket.query_params.get("have", ""))
        self._tabs += 1
        try:
            preview = await self._hub.make_preview(socket.path_params["session"])
            if preview is not None and have is None:
                await socket.send_text(msgspec.json.encode(preview).decode())
                await asyncio.sleep(0)  # it is on its way before the session is loaded
            while True:
                session = await self._open(socket.path_params["session"], have)
                if not await Tab(socket, self._hub, session, self._uploads, have).run():
                    break
                have = None  # the other program has closed it
        except SessionNotFound as error:
            if have is None:
                await self._refuse(socket, str(error))
            else:  # it was empty, and a server that was killed had not stored it
                session = await self._hub.create()
                reply = GoTo(session.session_id, is_replacement=True)
                await socket.send_text(msgspec.json.encode(reply).decode())
                await socket.close()
        except (TreadleError, OSError) as error:
            await self._refuse(socket, str(error))
        finally:
            self._tabs -= 1

    async def _open(self, session_id: str, have: Position | None) -> LiveSession | HeldSession:
        if await asyncio.to_thread(self._hub.is_agent, session_id):
            return await self._hub.find_held(session_id)
        try:
            session = await self._hub.find(session_id)
        except SessionBusy:
            return await self._hub.find_held(session_id)
        if have is not None and have.feed != session.feed.id:
            session.resume_if_asked()  # the server was restarted while the tab was open
        return session

    async def _refuse(self, socket: WebSocket, problem: str) -> None:
        await socket.send_text(msgspec.json.encode(Problem(problem, "open")).decode())
        await socket.close(1008)


async def _decode_body(request: Request, kind: type[_T], limit: int = 4_096) -> _T:
    try:
        return msgspec.json.decode(await read_body(request, limit), type=kind)
    except msgspec.DecodeError as error:
        raise ConfigError(str(error)) from error


def _read_step(request: Request) -> StepRequest:
    """What the address asks for; what is not known there is left at its default."""
    try:
        return msgspec.convert(dict(request.query_params), StepRequest, strict=False)
    except msgspec.ValidationError:
        return StepRequest()


def _read_position(text: str) -> Position | None:
    try:
        position = msgspec.json.decode(text, type=Position)
    except msgspec.DecodeError:
        return None
    return None if position.feed == PREVIEW_FEED else position
