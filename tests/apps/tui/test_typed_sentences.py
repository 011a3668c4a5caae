"""No sentence that is typed at an approval answers it, and none is lost: all three screens."""

import asyncio
from contextlib import closing

import pytest

from tests.apps.tui.tmux import Terminal, needs_tmux
from tests.apps.tui.typed_sentences import type_sentences
from tests.sentences import AskingModel, make_sentences
from treadle.testing.provider.server import ProviderServer

pytestmark = [needs_tmux, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("mode", ["", "--inline", "--plain"])
async def test_typed_sentences_answer_no_approval_and_arrive_whole(own_place, mode):
    async with ProviderServer(AskingModel(), strict=False) as server:
        with closing(Terminal(own_place, (80, 24))) as terminal:
            sentences = make_sentences(10, seed=33)
            await asyncio.to_thread(type_sentences, terminal, server, mode, sentences, 33)
