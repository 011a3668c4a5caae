"""An agent of runs whose model is Anthropic's at the address in FLEET_PROVIDER, with a price."""

from __future__ import annotations

import os
from pathlib import Path

from treadle import Agent
from treadle.apps.fleet.task import FleetTask
from treadle.core.contracts.model import ModelCard
from treadle.models import Anthropic

CARD = ModelCard("priced", window=100_000, max_output=1_000, input_price=10.0, output_price=100.0)


def make_agent(task: FleetTask, folder: Path) -> Agent:
    url = os.environ["FLEET_PROVIDER"]
    return Agent(Anthropic("m", base_url=url, api_key="k", card=CARD))
