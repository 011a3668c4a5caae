"""The pages of a fleet: its report, its runs, and the calls that wait for approval.

    GET  /fleet               the report, and a form for each call that waits
    GET  /fleet/runs/ID       the session of a run
    POST /fleet/approvals     an answer: id, decision (allow or deny), reason
    GET  /fleet/health        for monitors: 200, or 503 if runs are queued and no worker is alive

Part of the application (application.py), behind its guard. No scripts. The database is opened at
the first look, and nothing is written there but answers.
"""

from __future__ import annotations

import asyncio
import html
import time
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.reports.local_session import render_session
from treadle.apps.fleet.reports.report import make_report
from treadle.apps.fleet.reports.report_page import render_report
from treadle.apps.fleet.run_record import FleetApproval
from treadle.apps.fleet.worker_registry import DEFAULT_LEASE
from treadle.apps.pages.elements import render_section
from treadle.apps.pages.frame import render_page
from treadle.apps.web.request_body import read_body
from treadle.core.errors import ConfigError, TreadleError
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, format_duration, plural

REFRESH_SECONDS = 5
SILENT_SECONDS = 2 * DEFAULT_LEASE  # a worker without a heartbeat for so long is dead
HEALTH_SECONDS = 5.0  # monitors give up soon
MAX_ANSWER = 65_536  # bytes of a form
# A browser names the origin of a form only to those who may know where it was.
_FORM_HEADERS = {"Referrer-Policy": "same-origin"}

_FORM = """\
<form class="cause" method="post" action="/fleet/approvals">
<input type="hidden" name="id" value="{id}">
<p><b>{tool}</b> <small>{about}</small></p><pre>{arguments}</pre>
<p><button class="btn no" name="decision" value="deny">Deny</button>
<input name="reason" placeholder="reason, for the model" aria-label="reason" size="40">
<button class="btn first" name="decision" value="allow">Allow</button></p></form>"""
# The enter key presses the first button of a form: it must not allow anything.


class FleetPages:
    """The pages of the fleet at one address."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._opening = asyncio.Lock()
        self._database: FleetDatabase | None = None
        self.routes = [
            Route("/fleet", self.show_report),
            Route("/fleet/runs/{run}", self.show_run),
            Route("/fleet/approvals", self.answer, methods=["POST"]),
            Route("/fleet/health", self.show_health),
        ]

    async def aclose(self) -> None:
        if self._database is not None:
            await self._database.aclose()

    async def show_report(self, request: Request) -> Response:
        database = await self._open()
        runs, now = await database.runs(), time.time()
        waiting = await database.approvals()
        links = {run.id: f"/fleet/runs/{quote(run.id)}" for run in runs if run.started is not None}
        body = render_report(make_report(runs, now), links=links, top=_render_waiting(waiting, now))
        # Not while there is a form: a person may be writing a reason.
        refresh = {} if waiting else {"Refresh": str(REFRESH_SECONDS)}
        page = render_page("Fleet", "fleet", "", body, "page", script="plain")
        return HTMLResponse(page, headers=_FORM_HEADERS | refresh)

    async def show_run(self, request: Request) -> Response:
        database, name = await self._open(), request.path_params["run"]
        run = await database.run(name)
        if run is None:
            raise ConfigError(f"there is no run {name!r}")
        page = await render_session(database, run)
        # One file with its own policy, which allows its styles.
        return HTMLResponse(page, headers={"Content-Security-Policy": "frame-ancestors 'none'"})

    async def answer(self, request: Request) -> Response:
        text = (await read_body(request, MAX_ANSWER)).decode(errors="replace")
        fields = {name: values[0] for name, values in parse_qs(text).items()}
        decision = fields.get("decision")
        if decision not in ("allow", "deny") or "id" not in fields:
            raise ConfigError("an answer needs an id and a decision")
        await (await self._open()).answer_approval(
            fields["id"], allow=decision == "allow", reason=fields.get("reason", "")
        )
        return RedirectResponse("/fleet", 303)

    async def show_health(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                database = await self._open()
                totals, workers = await database.totals(), await database.workers()
        except (TreadleError, OSError) as error:
            return JSONResponse({"status": "no database", "problem": type(error).__name__}, 503)
        alive = [one for one in workers if time.time() - one.heartbeat < SILENT_SECONDS]
        is_served = bool(alive) or not totals.states.get("queued")
        return JSONResponse(
            {
                "status": "ok" if is_served else "no worker",
                "engine": database.engine_name,
                "runs": totals.states,
                "queue_age": round(totals.queue_age, 1),
                "cost": round(totals.cost, 4),
                "workers": len(alive),
            },
            200 if is_served else 503,
        )

    async def _open(self) -> FleetDatabase:
        async with self._opening:
            if self._database is None:
                self._database = await open_database(self._store, create=False)
            return self._database


def _render_waiting(waiting: list[FleetApproval], now: float) -> str:
    if not waiting:
        return ""
    count = plural(len(waiting), "call waits", "calls wait")
    forms = [
        _FORM.format(
            id=html.escape(one.id),
            tool=html.escape(escape_invisible(one.tool)),
            about=html.escape(_describe(one, now)),
            arguments=html.escape(escape_invisible(strip_escapes(one.arguments), keep="\n\t")),
        )
        for one in waiting
    ]
    return render_section("w", f"{count} for approval", "".join(forms))


def _describe(one: FleetApproval, now: float) -> str:
    limit = f", denied in {format_duration(max(0.0, one.expires - now))}" if one.expires else ""
    return f"run {one.run}, {format_age(now - one.created)}{limit}"
