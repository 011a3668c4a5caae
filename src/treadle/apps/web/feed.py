"""Sends a conversation to the tabs that show it, as numbered states.

A tab gets the difference between the state that it has and the newest one: whatever the tab or the
network does, it skips nothing and gets nothing twice, and a slow tab gets fewer, larger messages.
Nothing is queued for it. A tab that comes back names the state that it has; if that is still known,
it gets the difference, else the end of the conversation anew.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

import msgspec

from treadle.apps.conversation.state.blocks import ViewBlock
from treadle.apps.conversation.state.persistent_list import PersistentList
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.core.transcript.content import Image

KNOWN_STATES = 64  # a tab that comes back with an older one starts anew
MAX_FIRST_BLOCKS = 200
MAX_CACHED_BLOCKS = 2_000
PREVIEW_FEED = "preview"  # what is shown before the session is open; no tab continues from it


class PageState(msgspec.Struct, frozen=True):
    """What a tab shows: the blocks, and the regions around them by the id of their element."""

    version: int
    blocks: PersistentList[ViewBlock]
    regions: dict[str, str]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The state that a tab has. `first` is the index of its first block."""

    feed: str
    version: int
    first: int = 0


class Update(msgspec.Struct, frozen=True, tag="update", tag_field="kind", omit_defaults=True):
    """`blocks` are (index, HTML). `is_reset`: they replace everything that the tab has."""

    session: str
    position: Position
    count: int  # blocks that there are
    blocks: tuple[tuple[int, str], ...] = ()
    regions: dict[str, str] = {}
    is_reset: bool = False


class Feed:
    """The states of one conversation. `build` makes the newest one, with a given version; it is
    called only when a tab wants it, once for all tabs. For the others see BlockContext."""

    def __init__(
        self,
        session_id: str,
        build: Callable[[int], PageState],
        find_seconds: Callable[[str], float | None] = lambda call_id: None,
        find_start: Callable[[str], float | None] = lambda call_id: None,
    ) -> None:
        self.session_id = session_id
        self.id = secrets.token_hex(4)
        self._pictures: dict[str, Image] = {}
        self._context = BlockContext(self._link_picture, find_seconds, find_start)
        self._build = build
        self._states: deque[PageState] = deque(maxlen=KNOWN_STATES)
        self._is_stale = True
        self._version = 0
        self._listeners: set[Callable[[], None]] = set()
        self._html: OrderedDict[int, tuple[ViewBlock, str]] = OrderedDict()

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` after each change; the returned function ends that."""
        self._listeners.add(on_change)
        return lambda: self._listeners.discard(on_change)

    @property
    def is_watched(self) -> bool:
        return bool(self._listeners)

    def mark_changed(self) -> None:
        self._is_stale = True
        for listener in tuple(self._listeners):
            listener()

    @property
    def state(self) -> PageState:
        if self._is_stale:
            self._is_stale = False
            self._version += 1
            self._states.append(self._build(self._version))
        return self._states[-1]

    def refresh(self) -> None:
        """Build the newest state now; until the next change the tabs get this one."""
        _ = self.state

    def make_update(self, have: Position | None) -> Update | None:
        """What brings a tab from its state to the newest one; None if it has that already."""
        new = self.state
        old = self._find_state(have)
        if old is None or have is None:
            return self._make_reset(new)
        if old is new:
            return None
        shared = {name for name in new.regions if old.regions.get(name) == new.regions[name]}
        changed = [index for index in new.blocks.changed_indexes(old.blocks) if index >= have.first]
        return Update(
            self.session_id,
            Position(self.id, new.version, min(have.first, len(new.blocks))),
            len(new.blocks),
            tuple((index, self._render(index, new.blocks[index])) for index in changed),
            {name: html for name, html in new.regions.items() if name not in shared},
        )

    def confirm(self, have: Position) -> Update:
        """The update for a tab that has the newest state."""
        return Update(self.session_id, have, len(self.state.blocks))

    def make_earlier(self, first: int) -> list[tuple[int, str]]:
        """The blocks before the first one that a tab has."""
        blocks = self.state.blocks
        start = max(0, first - MAX_FIRST_BLOCKS)
        return list(self._render_range(blocks, start, min(first, len(blocks))))

    def _make_reset(self, state: PageState) -> Update:
        count = len(state.blocks)
        first = max(0, count - MAX_FIRST_BLOCKS)
        blocks = tuple(self._render_range(state.blocks, first, count))
        position = Position(self.id, state.version, first)
        return Update(self.session_id, position, count, blocks, state.regions, is_reset=True)

    def _find_state(self, have: Position | None) -> PageState | None:
        if have is None or have.feed != self.id:
            return None
        return next((one for one in self._states if one.version == have.version), None)

    def _render_range(
        self, blocks: PersistentList[ViewBlock], start: int, stop: int
    ) -> Iterator[tuple[int, str]]:
        for index in range(start, stop):
            yield index, self._render(index, blocks[index])

    def _render(self, index: int, block: ViewBlock) -> str:
        cached = self._html.get(index)
        if cached is not None and cached[0] is block:
            return cached[1]
        html = render_block(block, self._context)
        self._html[index] = (block, html)
        self._html.move_to_end(index)
        if len(self._html) > MAX_CACHED_BLOCKS:
            self._html.popitem(last=False)
        return html

    # --- pictures --------------------------------------------------------------------------

    def find_picture(self, name: str) -> Image | None:
        """A picture that a tab was told of."""
        return self._pictures.get(name)

    def _link_picture(self, image: Image) -> str:
        name = hashlib.blake2b(image.data, digest_size=16).hexdigest()
        self._pictures[name] = image
        return f"/session/{self.session_id}/picture/{name}"
