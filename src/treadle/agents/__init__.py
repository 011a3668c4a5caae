"""Agents: a model, tools and rules put together, child agents, and structured output."""
