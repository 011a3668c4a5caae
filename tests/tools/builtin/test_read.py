from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.tools.builtin.helpers import failed, hands, plain
from treadle.core.transcript.content import Document, Image, Text

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def test_lines_have_numbers_and_the_rest_is_offered(folder: Path) -> None:
    (folder / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 3001)))
    async with hands(folder) as agent:
        first, middle, end = await agent.do(
            ("read", {"file_path": "a.txt"}),
            ("read", {"file_path": "a.txt", "offset": 2001, "limit": 2}),
            ("read", {"file_path": str(folder / "a.txt"), "offset": 2999}),
        )
    assert plain(first).startswith("1\tline 1\n2\tline 2\n")
    assert first.text.endswith("(lines 1 to 2000 of 3000; read on with offset=2001)")
    assert first.display == "Read a.txt, lines 1 to 2000"
    assert middle.text.startswith("2001\tline 2001\n2002\tline 2002\n\n(lines 2001 to 2002")
    assert (
        end.text == "2999\tline 2999\n3000\tline 3000\n\n(lines 2999 to 3000, the end of the file)"
    )


@pytest.mark.parametrize("key", ["path", "file"])
async def test_other_names_of_the_path_are_understood_but_not_two_at_once(
    folder: Path, key: str
) -> None:
    (folder / "a.txt").write_text("here")
    async with hands(folder) as agent:
        one, two = await agent.do(
            ("read", {key: "a.txt"}), ("read", {key: "a.txt", "file_path": "/etc/passwd"})
        )
    assert "here" in plain(one)
    assert "given twice" in failed(two)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("grüße\n".encode(), "grüße"),
        (b"\xef\xbb\xbfmarked\n", "marked"),
        ("grüße\n".encode("utf-16"), "grüße"),
        ("plain words in sixteen bits\n".encode("utf-16-le"), "plain words"),
        ("grüße\n".encode("cp1252"), "grüße\n\n(encoded as cp1252"),
        (b"", "empty"),
        (b"one\r\ntwo\r\n", "1\tone\n2\ttwo"),
        ("a\u2028b\x0cc\n".encode(), "1\ta\u2028b\x0cc"),
    ],
)
async def test_encodings_are_known(folder: Path, data: bytes, shown: str) -> None:
    (folder / "a.txt").write_bytes(data)
    async with hands(folder) as agent:
        assert shown in plain(await agent.one("read", file_path="a.txt"))


async def test_pictures_and_documents_are_shown_as_what_they_are(folder: Path) -> None:
    (folder / "a.png").write_bytes(PNG)
    (folder / "a.pdf").write_bytes(b"%PDF-1.4 and so on")
    (folder / "big.png").write_bytes(PNG + bytes(4_000_000))
    async with hands(folder) as agent:
        picture, document, big = await agent.do(
            *(("read", {"file_path": name}) for name in ("a.png", "a.pdf", "big.png"))
        )
    assert picture.content[1] == Image("image/png", PNG)
    assert isinstance(document.content[0], Text)
    assert isinstance(document.content[1], Document)
    assert "Make it smaller" in failed(big)


async def test_a_notebook_is_read_as_its_cells(folder: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": "1/0",
            "outputs": [
                {"output_type": "stream", "text": ["printed\n"]},
                {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "by zero"},
                {"output_type": "display_data", "data": {"image/png": "aaaa"}},
            ],
        },
    ]
    (folder / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    async with hands(folder) as agent:
        text = plain(await agent.one("read", file_path="a.ipynb"))
    assert text == (
        "[cell 1: markdown]\n# Title\nwords\n\n[cell 2: code]\n1/0\n[output of cell 2]\n"
        "printed\n\nZeroDivisionError: by zero\n(image/png image)"
    )


@pytest.mark.parametrize(
    ("notebook", "shown"),
    [
        ('{"x": %s, "cells": []}' % ("[" * 99_999 + "]" * 99_999), "1\t{"),
        ('{"cells": [{"outputs": [{"data": {"text/plain": %s}}]}]}' % ("[" * 9_999), "1\t{"),
        ('{"cells": [{"outputs": [{"data": {"text/plain": 5}}]}]}', "1\t{"),
        ('{"cells": [{"source": null}]}', "1\t{"),
        ('{"cells": [%s{}]}' % ("{}," * 500_000), "(cut in cell 4056 of 500001; look at the rest"),
        ('{"cells": [{"source": "%s"}]}' % ("x" * 7_000_000), "(cut in cell 1 of 1; look at"),
        ('{"cells": []}', "The notebook has no cells."),
    ],
)
async def test_no_notebook_is_too_much(folder: Path, notebook: str, shown: str) -> None:
    (folder / "a.ipynb").write_text(notebook)
    async with hands(folder) as agent:
        text = plain(await agent.one("read", file_path="a.ipynb"))
    assert shown in text
    assert len(text) < 100_000


async def test_binary_data_is_refused_with_a_hint(folder: Path) -> None:
    (folder / "a.bin").write_bytes(bytes(range(256)) * 40)
    async with hands(folder) as agent:
        assert "xxd" in failed(await agent.one("read", file_path="a.bin"))


async def test_a_huge_file_is_read_anywhere_in_it(folder: Path) -> None:
    with (folder / "huge.log").open("w") as file:
        for start in range(0, 600_000, 1000):
            file.writelines(f"entry {n} {'.' * 20}\n" for n in range(start, start + 1000))
    async with hands(folder) as agent:
        begin, far, beyond = await agent.do(
            ("read", {"file_path": "huge.log", "limit": 2}),
            ("read", {"file_path": "huge.log", "offset": 590_000, "limit": 1}),
            ("read", {"file_path": "huge.log", "offset": 700_000}),
        )
    assert plain(begin).startswith("1\tentry 0 ")
    assert plain(far).startswith("590000\tentry 589999 ")
    assert "read on with offset=590001" in far.text
    assert "has only 600,000 lines; offset 700000 is past the end" in failed(beyond)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
async def test_the_end_of_a_huge_file_in_another_encoding_is_text(
    folder: Path, encoding: str
) -> None:
    text = "".join(f"Zeile {number} für dich {'.' * 20}\n" for number in range(300_000))
    (folder / "huge.log").write_bytes(text.encode(encoding))
    async with hands(folder) as agent:
        far, beyond = await agent.do(
            ("read", {"file_path": "huge.log", "offset": 299_999}),
            ("read", {"file_path": "huge.log", "offset": 700_000}),
        )
    assert plain(far).startswith("299999\tZeile 299998 für dich ")
    assert "\0" not in far.text
    assert "has only 300,000 lines" in failed(beyond)


async def test_one_endless_line_is_cut(folder: Path) -> None:
    (folder / "min.js").write_text("x" * 20_000_000)
    async with hands(folder) as agent:
        text = plain(await agent.one("read", file_path="min.js"))
    assert len(text) < 3_000
    assert "more characters]" in text


async def test_a_name_that_is_nearly_right_is_suggested(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src/settings.py").write_text("x")
    (folder / "top.py").write_text("x")
    async with hands(folder) as agent:
        typo, other, below = await agent.do(
            ("read", {"file_path": "src/setings.py"}),
            ("read", {"file_path": "src/settings.ts"}),
            ("read", {"file_path": "src"}),
        )
        await agent.do(("bash", {"command": "cd src"}), ("read", {"file_path": "settings.py"}))
        moved = await agent.do(("bash", {"command": "cd src"}), ("read", {"file_path": "top.py"}))
    assert "Did you mean src/settings.py?" in failed(typo)
    assert "Did you mean src/settings.py?" in failed(other)
    assert "list it with ls" in failed(below)
    assert f"Did you mean {folder}/top.py?" in failed(moved[1])


async def test_fault_66_what_never_ends_is_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    (folder / "zero").symlink_to("/dev/zero")
    async with hands(folder) as agent:
        items = await agent.do(
            *(("read", {"file_path": name}) for name in ("pipe", "socket", "zero", "/dev/random"))
        )
    server.close()
    assert "a named pipe" in failed(items[0])
    assert "socket" in failed(items[1])
    assert "outside" in failed(items[2])
    assert "outside" in failed(items[3])


async def test_fault_74_what_cannot_be_read_is_said(folder: Path) -> None:
    (folder / "circle").symlink_to("circle")
    async with hands(folder) as agent:
        circle, long, nothing = await agent.do(
            ("read", {"file_path": "circle"}),
            ("read", {"file_path": "a" * 5000}),
            ("read", {"file_path": "no/such/file"}),
        )
    assert "circle" in failed(circle)
    assert "too long" in failed(long)
    assert "does not exist" in failed(nothing)


async def test_listing_a_folder(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / ".hidden").write_text("")
    (folder / "a.py").write_text("")
    async with hands(folder) as agent:
        here, sub, file, missing = await agent.do(
            ("ls", {}), ("ls", {"path": "sub"}), ("ls", {"path": "a.py"}), ("ls", {"path": "suv"})
        )
    assert plain(here) == ".hidden\na.py\nsub/"
    assert here.display == ".: 3 entries"
    assert plain(sub) == "sub is empty."
    assert "read it" in failed(file)
    assert "Did you mean sub?" in failed(missing)


async def test_a_home_folder_that_nobody_has_is_an_error_for_the_model(folder: Path) -> None:
    async with hands(folder) as agent:
        read, ran = await agent.do(
            ("read", {"file_path": "~no-such-user/x"}),
            ("bash", {"command": "ls", "cwd": "~no-such-user"}),
        )
    assert "~no-such-user/x: no user has this home folder" in failed(read)
    assert "~no-such-user: no user has this home folder" in failed(ran)
