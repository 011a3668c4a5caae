"""Serves the report of a fleet on this machine, with the calls that wait for approval.

    GET  /TOKEN/             the report, and a form for each call that waits
    GET  /TOKEN/runs/ID      the session of a run
    POST /TOKEN/approvals    an answer: id, decision (allow or deny), reason

Listens on 127.0.0.1 only. The token is new for each start; without it there is no answer, so other
users and other pages in the browser cannot read or decide anything. No scripts. Used by `treadle
fleet serve`.
"""

from __future__ import annotations

import html
import secrets
import time
from urllib.parse import parse_qs, quote, unquote, urlsplit

from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.reports.local_session import render_session
from treadle.apps.fleet.reports.report import make_report
from treadle.apps.fleet.reports.report_page import render_page
from treadle.apps.fleet.run_record import FleetApproval
from treadle.apps.pages.elements import render_section
from treadle.core.errors import SessionNotFound, StoreError, error_message
from treadle.lib.http.local_hosts import LOOPBACK
from treadle.lib.http.loopback_server import LoopbackServer, PageAnswer, PageRequest
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, format_duration, plural

REFRESH_SECONDS = 5

_FORM = """\
<form class="cause" method="post" action="approvals"><input type="hidden" name="id" value="{id}">
<p><b>{tool}</b> <small>{about}</small></p><pre>{arguments}</pre>
<p><button class="btn no" name="decision" value="deny">Deny</button>
<input name="reason" placeholder="reason, for the model" size="40">
<button class="btn first" name="decision" value="allow">Allow</button></p></form>"""
# The enter key presses the first button of a form: it must not allow anything.


class PageServer(LoopbackServer):
    """The page of a fleet; `url` is known after `start`."""

    def __init__(self, database: FleetDatabase) -> None:
        super().__init__(self._answer)
        self._database = database
        self._token = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/{self._token}/"

    async def _answer(self, request: PageRequest) -> PageAnswer:
        """A page of another site may reach this port under its own name: the host is checked."""
        if request.host not in (
            f"{LOOPBACK}:{self.port}",
            f"localhost:{self.port}",
        ):
            return PageAnswer("403 Forbidden", "use the address that the program printed")
        _, token, *rest = urlsplit(request.path).path.split("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return PageAnswer("404 Not Found", "use the address that the program printed")
        try:
            match (request.method, *rest):
                case ("GET", ""):
                    return PageAnswer("200 OK", await self._render_report())
                case ("GET", "runs", name):
                    return await self._render_session(unquote(name))
                case ("POST", "approvals"):
                    return await self._decide(request.body)
        except StoreError as error:
            return PageAnswer("503 Service Unavailable", html.escape(error_message(error)))
        return PageAnswer("404 Not Found", "there is no such page")

    # --- pages -----------------------------------------------------------------------------

    async def _render_report(self) -> str:
        runs, now = await self._database.runs(), time.time()
        waiting = await self._database.approvals()
        links = {run.id: f"runs/{quote(run.id)}" for run in runs if run.started is not None}
        report = make_report(runs, now)
        # Not while there is a form: a person may be writing a reason.
        refresh = REFRESH_SECONDS if not waiting else None
        return render_page(report, links=links, top=_render_waiting(waiting, now), refresh=refresh)

    async def _render_session(self, name: str) -> PageAnswer:
        run = await self._database.run(name)
        if run is None:
            return PageAnswer("404 Not Found", "there is no such run")
        try:
            page = await render_session(self._database, run)
        except SessionNotFound as error:
            return PageAnswer("404 Not Found", html.escape(error_message(error)))
        return PageAnswer("200 OK", page)

    async def _decide(self, body: str) -> PageAnswer:
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        decision = fields.get("decision")
        if decision not in ("allow", "deny") or "id" not in fields:
            return PageAnswer("400 Bad Request", "an answer needs an id and a decision")
        await self._database.answer_approval(
            fields["id"], allow=decision == "allow", reason=fields.get("reason", "")
        )
        return PageAnswer("303 See Other", location=f"/{self._token}/")


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
