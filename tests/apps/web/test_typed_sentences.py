"""No sentence that is typed at an approval on the page answers it, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.web.conftest import Site
from tests.apps.web.server import needs_chromium
from tests.apps.web.typed_sentences import type_sentences
from tests.sentences import make_sentences

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.timeout(240)]


async def test_typed_sentences_answer_no_approval_and_arrive_whole(site: Site, tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    await type_sentences(site, folder, make_sentences(10, seed=33), 33)
