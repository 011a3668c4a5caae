"""`treadle web [FOLDER]`: starts the server on this machine and prints the link."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.apps.console.console import get_current_folder
from treadle.apps.console.loopback import listen_on_loopback
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import TreadleError
from treadle.core.extras import require_extra
from treadle.lib.files.private_files import write_private_file
from treadle.lib.http.local_hosts import LOOPBACK

EXIT_USAGE = 2
MAX_MESSAGE_BYTES = 16 << 20


def run(arguments: Sequence[str]) -> int:
    options = _build_parser().parse_args(arguments)
    folder = Path(options.folder).expanduser()
    try:
        require_extra("web")
        if not folder.is_absolute():
            get_current_folder()
        if not folder.is_dir():
            raise TreadleError(f"there is no folder {folder}")
        link = read_link(is_new=options.new_link)
        listener = _listen(options.port or link.port, is_wanted=bool(options.port))
        save_link(SavedLink(link.token, listener.getsockname()[1]))
    except (TreadleError, OSError) as error:
        print(f"treadle: {error}", file=sys.stderr)
        return EXIT_USAGE
    flags = {"model": options.model} if options.model else {}
    if options.permission_mode:
        flags["permission_mode"] = options.permission_mode
    return _serve(folder, flags, listener, link.token)


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


def _serve(folder: Path, flags: dict[str, object], listener: socket.socket, token: str) -> int:
    import uvicorn

    from treadle.apps.web.application import build_app
    from treadle.apps.web.hub import Hub
    from treadle.lib.files.locks import set_program_name

    set_program_name("treadle web")
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        build_app(Hub(folder, flags), token),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws_max_size=MAX_MESSAGE_BYTES,
        timeout_graceful_shutdown=3,
    )
    print(f"Treadle: http://{LOOPBACK}:{port}/?token={token}")
    print(f"from another machine: ssh -L {port}:{LOOPBACK}:{port} THIS_MACHINE, then this link")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])
    return 0


class SavedLink(msgspec.Struct, frozen=True):
    token: str
    port: int = 0


def read_link(*, is_new: bool = False) -> SavedLink:
    """The saved link, or a new one that is not saved yet."""
    try:
        data = b"" if is_new else _find_file().read_bytes()
        return msgspec.json.decode(data, type=SavedLink)
    except (OSError, msgspec.DecodeError):
        return SavedLink(secrets.token_urlsafe(24))


def save_link(link: SavedLink) -> None:
    """Keep the link; only the user can read the file."""
    write_private_file(_find_file(), msgspec.json.encode(link))


def _find_file() -> Path:
    return treadle_home() / "web.json"
