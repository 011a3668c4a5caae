"""`treadle web [FOLDER]`: starts the server on this machine and prints the link."""

from __future__ import annotations

import argparse
import logging
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.console.console import get_current_folder
from treadle.apps.console.loopback import listen_on_loopback
from treadle.apps.fleet.store_address import DEFAULT_STORE
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import TreadleError
from treadle.core.extras import require_extra
from treadle.lib.files.private_files import locked_update
from treadle.lib.http.local_hosts import LOOPBACK
from treadle.lib.logger import logger

if TYPE_CHECKING:
    from treadle.apps.web.access import PageAccess

EXIT_USAGE = 2
MAX_MESSAGE_BYTES = 16 << 20
MAX_STARTS = 4  # whose tabs stay when the server is started again


def run(arguments: Sequence[str]) -> int:
    options = _build_parser().parse_args(arguments)
    folder = Path(options.folder).expanduser()
    try:
        require_extra("web")
        if not folder.is_absolute():
            get_current_folder()
        if not folder.is_dir():
            raise TreadleError(f"there is no folder {folder}")
        listener = _listen(options.port or read_link().port, is_wanted=bool(options.port))
        port = listener.getsockname()[1]
        access = make_access(port, options.host, is_new=options.new_link)
    except (TreadleError, OSError) as error:
        print(f"treadle: {error}", file=sys.stderr)
        return EXIT_USAGE
    flags = {"model": options.model} if options.model else {}
    if options.permission_mode:
        flags["permission_mode"] = options.permission_mode
    return _serve(folder, flags, listener, access, options)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treadle web",
        description="Work with sessions in a browser, and look into them. The page is reachable "
        "from this machine only; the printed link holds its key.",
    )
    parser.add_argument("folder", nargs="?", default=".", help="where new sessions work")
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="a port; by default that of the last time, or any free one",
    )
    parser.add_argument(
        "--new-link", action="store_true", help="make a new link; earlier ones stop working"
    )
    parser.add_argument(
        "--host",
        default="",
        metavar="NAME",
        help="the name in the address, for a tunnel, or for a browser that does not know names "
        "such as treadle-1a2b3c.localhost",
    )
    store = "the fleet of its page: sqlite:PATH or postgresql://… (default: that of this user)"
    parser.add_argument("--fleet", metavar="ADDRESS", help=store)
    parser.add_argument("--model", default="", help="the model of the sessions")
    parser.add_argument("--permission-mode", default="", help="plan, ask, accept-edits or auto")
    return parser


def _listen(port: int, *, is_wanted: bool) -> socket.socket:
    """A socket on this port; on any free one if it is in use and the user did not ask for it."""
    try:
        return listen_on_loopback(port)
    except TreadleError:
        if is_wanted:
            raise
        return listen_on_loopback(0)


def _serve(
    folder: Path,
    flags: dict[str, object],
    listener: socket.socket,
    access: PageAccess,
    options: argparse.Namespace,
) -> int:
    import uvicorn

    from treadle.apps.web.application import build_app
    from treadle.apps.web.hub import Hub
    from treadle.lib.files.locks import set_program_name

    set_program_name("treadle web")
    logger.addHandler(logging.StreamHandler())  # of what fails beside the requests
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        build_app(Hub(folder, flags), access, options.fleet or DEFAULT_STORE),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws_max_size=MAX_MESSAGE_BYTES,
        timeout_graceful_shutdown=3,
    )
    page = "fleet" if options.fleet is not None else ""
    print(f"Treadle: http://{access.host}:{port}/{page}?token={access.token}")
    print(f"from another machine: ssh -L {port}:{LOOPBACK}:{port} THIS_MACHINE, then this link")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])
    return 0


class SavedLink(msgspec.Struct, frozen=True):
    """What is kept for the next start. `starts` are hashes of the cookies of the last ones."""

    token: str = ""
    port: int = 0
    host: str = ""
    starts: tuple[str, ...] = ()


def read_link() -> SavedLink:
    try:
        return msgspec.json.decode(_find_file().read_bytes(), type=SavedLink)
    except (OSError, msgspec.DecodeError):
        return SavedLink()


def make_access(port: int, host: str = "", *, is_new: bool = False) -> PageAccess:
    """Who may use the server that starts now. The link stays that of the last time, unless a new
    one is wanted; the cookie is new."""
    from treadle.apps.web.access import PageAccess, hash_cookie

    cookie, made = secrets.token_urlsafe(24), list[PageAccess]()

    def update() -> bytes:
        known = read_link()
        token = known.token if known.token and not is_new else secrets.token_urlsafe(24)
        own = known.host or f"treadle-{secrets.token_hex(4)}.localhost"
        starts = () if is_new else known.starts[-MAX_STARTS:]
        made.append(PageAccess(token, host.lower() or own, cookie, starts, f"treadle_{port}"))
        link = SavedLink(token, port, own, (*starts, hash_cookie(cookie)))
        return msgspec.json.encode(link)

    locked_update(_find_file(), update)
    return made[0]


def _find_file() -> Path:
    return treadle_home() / "web.json"
