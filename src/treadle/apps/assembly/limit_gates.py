"""The gates of an agent: repetition, tokens, time and cost.

Limits in tokens and cost count what the session used before it was resumed. A stage of stages.py.
"""

from __future__ import annotations

from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.sessions import load_earlier_usage
from treadle.budgets import CostBudget, RepetitionGuard, TimeLimit, TokenBudget
from treadle.core.contracts.gate import Gate
from treadle.core.transcript.pending import last_reply


def add_limits(parts: AgentParts) -> None:
    settings, model, limits = parts.settings, parts.model, list[Gate]()
    session_id = parts.store.session_id if parts.store is not None else ""
    earlier = load_earlier_usage(parts.store, parts.state)
    reply = last_reply(parts.state.transcript) if parts.state is not None else None
    if settings.max_tokens is not None:
        tokens = TokenBudget(settings.max_tokens)
        tokens.add_earlier(earlier)
        if reply is not None:
            tokens.expect_closing(session_id, reply.usage.total_input)
        limits.append(tokens)
    if settings.max_time is not None:
        limits.append(TimeLimit(settings.max_time))
    cost = _make_cost_budget(parts)
    if cost is not None:
        cost.add_earlier(earlier, model.card)
        if reply is not None:
            cost.expect_closing(session_id, reply.usage.total_input, model.card)
        limits.append(cost)
    if parts.suspend:
        from treadle.apps.assembly.suspend import SuspendOnBudget

        limits = [SuspendOnBudget(limit, session_id) for limit in limits]
    parts.gates += [RepetitionGuard(), *limits]


def _make_cost_budget(parts: AgentParts) -> CostBudget | None:
    """The default limit is for one run of `treadle -p`, with a model that has a price."""
    settings, model = parts.settings, parts.model
    is_default = settings.origin("max_cost") == "default"
    is_one_run = parts.host is not None and not parts.is_interactive
    max_cost = settings.max_cost
    if is_default and not is_one_run:
        limit = parts.managed_policy.limits.get("max_cost")
        max_cost, is_default = (limit.value, False) if limit is not None else (None, True)
    if max_cost is None:
        return None
    assumed_price = None
    if model.card.input_price is None or model.card.output_price is None:
        assumed_price = _find_list_price(model.name)
        if assumed_price is None and is_default:
            unknown = f"no cost limit: the price of {model.name} is unknown"
            parts.warnings.append(f"{unknown}; use --max-tokens to limit the session")
            return None
    return CostBudget(max_cost, assumed_price)


def _find_list_price(name: str) -> tuple[float, float] | None:
    """The maker's price of a model that is used through an address without a price."""
    from treadle.models.catalog import card_for

    card = card_for(name)
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price
