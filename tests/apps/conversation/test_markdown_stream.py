from hypothesis import given
from hypothesis import strategies as st

from treadle.apps.conversation.state import markdown_stream
from treadle.apps.conversation.state.blocks import CodeBlock, MarkdownBlock

MARKDOWN = """\
# Head

Some words
on two lines.

- one
- two

```python
def f():

    return 1
```
After it.

~~~
raw ``` inside
~~~
"""


def streamed(text: str, sizes: list[int]) -> list[markdown_stream.ReplyBlock]:
    blocks: list[markdown_stream.ReplyBlock] = [markdown_stream.start_block()]
    at = 0
    while at < len(text):
        size = sizes[at % len(sizes)] if sizes else 1
        blocks[-1:] = markdown_stream.append_text(blocks[-1], text[at : at + size])
        at += size
    return [block for block in blocks if not markdown_stream.is_empty(block)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_the_blocks_are_the_same_however_the_text_arrives(sizes):
    assert streamed(MARKDOWN, sizes) == list(markdown_stream.split_markdown(MARKDOWN))


@given(st.text(alphabet="ab `~\n#-", max_size=400), st.lists(st.integers(1, 9), min_size=1))
def test_no_text_is_lost_or_repeated(text, sizes):
    pieces = streamed(text, sizes)
    kept = "".join(c for c in "".join(p.text for p in pieces) if c in "ab#-")
    unfenced = text
    for line in text.split("\n"):  # the words after a fence's mark name its language
        if markdown_stream._FENCE.match(line):
            unfenced = unfenced.replace(line, "", 1)
    assert len(kept) >= sum(c in "ab#-" for c in unfenced) - sum(
        len(p.language) for p in pieces if isinstance(p, CodeBlock)
    )


def test_a_paragraph_and_a_fence_are_blocks_of_their_own():
    kinds = [
        (type(b).__name__, getattr(b, "language", ""))
        for b in markdown_stream.split_markdown(MARKDOWN)
    ]
    assert kinds == [
        ("MarkdownBlock", ""),
        ("MarkdownBlock", ""),
        ("MarkdownBlock", ""),
        ("CodeBlock", "python"),
        ("MarkdownBlock", ""),
        ("CodeBlock", ""),
    ]
    code = markdown_stream.split_markdown(MARKDOWN)[3]
    assert code.text == "def f():\n\n    return 1\n"


def test_what_is_too_long_is_cut_into_tight_pieces():
    code = markdown_stream.split_markdown("```\n" + "x = 1\n" * 1_000 + "```\n")
    assert all(isinstance(piece, CodeBlock) for piece in code)
    assert [piece.is_continuation for piece in code][:2] == [False, True]
    assert max(piece.text.count("\n") for piece in code) <= markdown_stream.MAX_LINES
    words = markdown_stream.split_markdown("word " * 20_000)
    assert all(
        isinstance(piece, MarkdownBlock) and len(piece.text) <= markdown_stream.MAX_PARAGRAPH_CHARS
        for piece in words
    )
    assert "".join(piece.text for piece in words).split() == ["word"] * 20_000


def test_a_long_paragraph_is_one_block_also_while_it_arrives():
    blocks: tuple[MarkdownBlock | CodeBlock, ...] = (markdown_stream.start_block(),)
    for number in range(1_500):
        blocks = markdown_stream.append_text(blocks[-1], f"word{number} ")
        assert len(blocks) == 1
