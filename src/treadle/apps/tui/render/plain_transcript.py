"""Prints a view as lines that only grow: what is new since the last time, each block once.

Used by plain.py for the session, and for a child agent that the user watches.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from treadle.apps.conversation.block_text import (
    format_call_title,
    is_diff,
    plain_text,
    replace_controls,
)
from treadle.apps.conversation.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.conversation.state.persistent_list import PersistentList
from treadle.apps.conversation.state.view_state import ViewState
from treadle.lib.text.text import plural

MAX_LINE_CHARS = 200  # of a result or of thinking
_PIECES = re.compile(r"\n| +|[^ \n]+")


class WordWrap:
    """Breaks lines between words: a terminal would break inside of them. Takes a text in pieces, as
    it arrives; a piece ends between words. Code is not given to it."""

    def __init__(self) -> None:
        self._column = 0
        self._indent = ""
        self._spaces = ""  # that the next word may replace by a line break

    def feed(self, text: str, width: int) -> str:
        """The text with line breaks; as it is if the width is not known (0)."""
        if width <= 0:
            return text
        done: list[str] = []
        for piece in _PIECES.findall(text):
            if piece == "\n":
                done.append(self._spaces + piece)
                self._column, self._indent, self._spaces = 0, "", ""
            elif piece[0] == " ":
                self._spaces += piece
                if not self._column:
                    self._indent = self._spaces if len(self._spaces) < width // 2 else ""
            else:
                done.append(self._place(piece, width))
        return "".join(done)

    def flush(self) -> str:
        """The spaces at the end, which no word followed."""
        spaces, self._spaces, self._column = self._spaces, "", 0
        return spaces

    def _place(self, word: str, width: int) -> str:
        before, self._spaces = self._spaces, ""
        if self._column and self._column + len(before) + len(word) > width:
            before = "\n" + self._indent
            self._column = len(self._indent)
        else:
            self._column += len(before)
        self._column += len(word)
        return before + word


def wrap_words(text: str, width: int) -> str:
    wrap = WordWrap()
    return wrap.feed(text, width) + wrap.flush()


class PlainTranscript:
    """`width` is that of the terminal now, 0 if there is none. Without `prints_growing` a block is
    printed when it is complete. `typed_messages` are on the terminal already, since the user typed
    them there."""

    def __init__(
        self,
        write: Callable[[str], object],
        width: Callable[[], int],
        *,
        prints_growing: bool = True,
    ) -> None:
        self._prints_growing = prints_growing
        self._write = write
        self._width = width
        self.typed_messages: list[str] = []
        self._messages: list[str] = []  # to be printed between two paragraphs of the reply
        self.reset()

    def reset(self) -> None:
        """Another view follows: all of it is new."""
        self._printed_blocks = 0  # complete ones
        self._printed_chars = 0  # of the first block that is not complete
        self._is_block_begun = False
        self._reply_wrap = WordWrap()
        self._open_blocks: list[int] = []  # calls that are printed when they are finished

    def is_complete(self, view: ViewState) -> bool:
        """Whether every block of the view is printed."""
        return self._printed_blocks == len(view.blocks)

    @property
    def is_in_reply(self) -> bool:
        """Whether the last line is the beginning of a paragraph that grows."""
        return bool(self._printed_chars)

    def print_message(self, text: str) -> None:
        """Print what the program has to say, but not in the middle of a sentence of the reply."""
        self._messages.append(text)
        if not self.is_in_reply:
            self.print_messages()

    def print_messages(self) -> None:
        messages, self._messages = self._messages, []
        for text in messages:
            self._write(wrap_words(replace_controls(text), self._width()))

    def print_news(self, view: ViewState) -> None:
        """Print what is new, of the growing block as much as there is."""
        self._forget_discarded(view)
        self._print_finished_calls(view)
        while self._printed_blocks < len(view.blocks):
            is_growing = self._printed_blocks == view.stream_index
            if (is_growing and not self._prints_growing) or not self._print_block(view):
                break
        if not self.is_in_reply:
            self.print_messages()

    def _forget_discarded(self, view: ViewState) -> None:
        """Blocks of a discarded reply are no longer in the view; their text stays printed."""
        count = len(view.blocks)
        if self._printed_blocks > count or (self._printed_blocks == count and self._printed_chars):
            self._write("\n" if self._printed_chars else "")
            self._printed_blocks, self._printed_chars, self._is_block_begun = count, 0, False
            self._reply_wrap = WordWrap()
            self._open_blocks = [index for index in self._open_blocks if index < count]

    def _print_finished_calls(self, view: ViewState) -> None:
        """Print the calls that were open when later blocks were printed, between two paragraphs."""
        blocks = view.blocks
        if self._printed_chars or not self._open_blocks:
            return
        finished = [index for index in self._open_blocks if not _is_open(blocks[index])]
        for index in finished:
            self._open_blocks.remove(index)
            self._write(replace_controls(self._format_block(blocks[index])))

    def _print_block(self, view: ViewState) -> bool:
        """Print what is new of the first block that is not complete; whether it is complete."""
        block = view.blocks[self._printed_blocks]
        is_growing = self._printed_blocks == view.stream_index
        if _is_open(block):
            self._open_blocks.append(self._printed_blocks)
            self._printed_blocks += 1
            return True
        if isinstance(block, MarkdownBlock | CodeBlock):
            self._print_reply(block, view.blocks, is_growing)
        elif isinstance(block, NoteBlock) and not is_growing:
            self._write(wrap_words(replace_controls(self._format_block(block)), self._width()))
        elif not is_growing:
            self._write(replace_controls(self._format_block(block)))
        if is_growing:
            return False
        self._printed_blocks += 1
        return True

    def _print_reply(
        self,
        block: MarkdownBlock | CodeBlock,
        blocks: PersistentList[ViewBlock],
        is_growing: bool,
    ) -> None:
        index = self._printed_blocks
        end = safe_length(block) if is_growing else len(block.text)
        if is_growing and isinstance(block, MarkdownBlock):  # a word is printed when it is complete
            end = max(block.text.rfind(" ", 0, end), block.text.rfind("\n", 0, end)) + 1
        if not self._is_block_begun and (not is_growing or end > 0):
            self._is_block_begun = True
            previous = blocks[index - 1] if index else None
            self._write(replace_controls(format_start(block, previous)))
        if end > self._printed_chars:
            text = replace_controls(block.text[self._printed_chars : end])
            is_code = isinstance(block, CodeBlock)
            self._write(text if is_code else self._reply_wrap.feed(text, self._width()))
            self._printed_chars = end
        if is_growing:
            return
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        if end_text := format_end(block, following):
            self._write(self._reply_wrap.flush() + end_text)
        # A very long paragraph is cut into blocks after it was printed.
        self._printed_chars -= len(block.text)
        self._is_block_begun = False

    def _format_block(self, block: ViewBlock) -> str:
        match block:
            case UserMessageBlock(text=text, steered=False) if text.strip() in self.typed_messages:
                self.typed_messages.remove(text.strip())
                return ""
            case UserMessageBlock(text=text, steered=steered):
                return f"You{' (while it worked)' if steered else ''}: {text}\n"
            case ThinkingBlock(text=text, is_continuation=is_continuation):
                return "" if is_continuation else f"Thinking: {_cut(' '.join(text.split()))}\n"
            case ToolCallBlock():
                return self._format_call(block)
            case ShellBlock(exit_code=code):
                exit_line = f"exit code {code}\n" if code else ""
                return f"{plain_text(block)}\n{exit_line}"
            case NoteBlock(text=text, tone=tone):
                return f"{'Error: ' if tone == 'error' else ''}{text}\n"
        return ""

    def _format_call(self, call: ToolCallBlock) -> str:
        line = f"Tool {format_call_title(call)}: {call.state}"
        if is_diff(call.display):
            return f"{line}\n{call.display}\n"
        first, *rest = (call.reason if call.state == "denied" else call.result).strip().split("\n")
        more = f" (and {plural(len(rest), 'more line')})" if rest else ""
        return f"{line}. {_cut(first)}{more}\n"


def _is_open(block: ViewBlock) -> bool:
    """Whether a call or a command has no result yet, and does not run in the background."""
    is_detached = isinstance(block, ToolCallBlock) and block.state == "background"
    return (
        isinstance(block, ToolCallBlock | ShellBlock) and not block.is_finished and not is_detached
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}…"


# The beginning of a line that may become a fence.
_MAYBE_FENCE = re.compile(r"[ ]{0,12}(`{0,2}|~{0,2}|(`{3,}|~{3,}).*)\Z")


def format_start(block: MarkdownBlock | CodeBlock, previous: ViewBlock | None) -> str:
    """What comes before the text of a block: a blank line after another block, a fence."""
    if block.is_continuation:
        return ""
    is_first = not isinstance(previous, MarkdownBlock | CodeBlock)
    if isinstance(block, CodeBlock):
        fence = f"{block.fence}{block.language}\n"
        return fence if is_first else f"\n{fence}"
    return "" if is_first or block.text.startswith("\n") else "\n"


def format_end(block: MarkdownBlock | CodeBlock, following: ViewBlock | None) -> str:
    """What comes after the text of a complete block: the end of the line, the closing fence."""
    has_more = isinstance(following, MarkdownBlock | CodeBlock) and following.is_continuation
    if has_more:
        return ""
    end = "" if block.text.endswith("\n") or not block.text else "\n"
    return f"{end}{block.fence}\n" if isinstance(block, CodeBlock) else end


def safe_length(block: MarkdownBlock | CodeBlock) -> int:
    """The length of the text of a growing block that stays as it is."""
    start = block.text.rfind("\n") + 1
    return start if _MAYBE_FENCE.match(block.text, start) else len(block.text)
