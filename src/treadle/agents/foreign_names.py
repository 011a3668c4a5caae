"""Names of other libraries, and what the same thing is called here.

Used where a program gives an argument, reads an attribute or imports a class that does not exist:
the error says the name to use. Pure functions; imported only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.lib.text.text import suggest

# pydantic-ai, openai-agents, claude-agent-sdk, LangChain, LangGraph
_AGENT_ARGUMENTS: Mapping[str, str] = {
    "system": "instructions",
    "system_prompt": "instructions",
    "system_message": "instructions",
    "prompt": "instructions; a prompt is an argument of a run, agent.run(...)",
    "result_type": "output_type",
    "response_format": "output_type",
    "response_model": "output_type",
    "model_settings": "options, a ModelOptions",
    "retries": "retry, a Retry; output_retries is an argument of run",
    "toolsets": "tools",
    "handoffs": "tools, with other.as_handoff(name, description)",
    "max_iterations": "max_turns",
    "max_steps": "max_turns",
    "recursion_limit": "max_turns",
    "checkpointer": "store",
    "middleware": "hooks, mutators or gates",
    "input_guardrails": "hooks, at the point user_prompt_submit",
    "state_schema": "deps_type",
    "usage_limits": "gates, see treadle.budgets",
    "context_type": "deps_type",
    "deps": "an argument of a run, agent.run(..., deps=...); its type is deps_type",
    "output_retries": "an argument of a run, agent.run(..., output_retries=...)",
}
_RUN_ARGUMENTS: Mapping[str, str] = {
    "message_history": "history",
    "messages": "history",
    "chat_history": "history",
    "user_prompt": "prompt",
    "input": "prompt",
    "result_type": "output",
    "output_type": "output",
    "response_format": "output",
    "context": "deps",
    "session_id": "session",
    "thread_id": "session",
    "config": "session, which is the id of the thread",
    "max_turns": "an argument of Agent; agent.replace(max_turns=...) for one run",
    "model_settings": "options, a ModelOptions",
    "usage_limits": "gates, see treadle.budgets",
}
_SESSION_RUN_ARGUMENTS: Mapping[str, str] = {
    **_RUN_ARGUMENTS,
    "deps": "an argument of agent.session",
    "history": "an argument of agent.session",
    "message_history": "history, an argument of agent.session",
    "store": "an argument of agent.session",
    "session_id": "the first argument of agent.session",
    "thread_id": "the first argument of agent.session",
    "config": "agent.session, whose first argument is the id of the thread",
}
_SESSION_ARGUMENTS: Mapping[str, str] = {
    "id": "session_id, the first argument",
    "name": "session_id, the first argument",
    "session": "session_id, the first argument",
    "thread_id": "session_id, the first argument",
    "prompt": "an argument of session.run",
    "metadata": "an argument of session.run",
    "output": "an argument of session.run",
    "message_history": "history",
    "context": "deps",
    "path": "store",
    "db_path": "store",
}
_CODING_AGENT_ARGUMENTS: Mapping[str, str] = {
    **_AGENT_ARGUMENTS,
    "cwd": "folder",
    "mcp_servers": "mcp",
    "allowed_tools": "allow",
    "disallowed_tools": "deny",
    "can_use_tool": "approve",
    "append_system_prompt": "instructions",
    "max_budget_usd": "max_cost",
    "add_dirs": "add_dir",
}
_AGENT_ATTRIBUTES: Mapping[str, str] = {
    "run_stream": "stream",
    "run_streamed": "stream",
    "run_stream_events": "stream",
    "astream": "stream",
    "invoke": "run_sync",
    "ainvoke": "run",
    "iter": "start, or session and its next",
    "tool": "the function treadle.tool, and Agent(tools=[...])",
    "tool_plain": "the function treadle.tool, and Agent(tools=[...])",
    "system_prompt": "Agent(instructions=...)",
    "clone": "replace",
    "override": "replace",
    "get_state": "session(id), and the transcript of that session",
}
_RESULT_ATTRIBUTES: Mapping[str, str] = {
    "data": "output",
    "final_output": "output",
    "all_messages": "transcript",
    "new_messages": "turn.items",
    "new_items": "turn.items",
    "to_input_list": "transcript",
    "messages": "transcript",
    "total_cost_usd": "cost",
}
# Classes that a program imports from `treadle`; the last ones are in other modules of it.
_CLASSES: Mapping[str, str] = {
    "ModelRetry": "ToolError",
    "UsageLimits": "Agent(max_turns=..., gates=[...]), see treadle.budgets",
    "TestModel": "treadle.models.Scripted",
    "FunctionModel": "treadle.models.Scripted, with a function",
    "Runner": "Agent, with its run, run_sync and stream",
    "RunResult": "Result",
    "AgentRunResult": "Result",
    "RunContextWrapper": "RunContext for instructions, ToolContext for tools",
    "SQLiteSession": 'Agent(store="sessions.db"), and agent.session(id)',
    "ClaudeAgentOptions": "the arguments of coding_agent",
    "Tool": "treadle.contracts.Tool; for a function, tool",
    "Scripted": "treadle.models.Scripted",
    "MemoryStore": "treadle.testing.MemoryStore",
    "McpServer": "treadle.tools.McpServer",
}


_ARGUMENTS = {
    "Agent": _AGENT_ARGUMENTS,
    "agent.run": _RUN_ARGUMENTS,
    "agent.stream": _RUN_ARGUMENTS,
    "agent.session": _SESSION_ARGUMENTS,
    "session.run": _SESSION_RUN_ARGUMENTS,
    "session.stream": _SESSION_RUN_ARGUMENTS,
    "coding_agent": _CODING_AGENT_ARGUMENTS,
}
_ATTRIBUTES = {"Agent": _AGENT_ATTRIBUTES, "Result": _RESULT_ATTRIBUTES}


def unknown_argument(function: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for an argument that does not exist."""
    foreign, known = _ARGUMENTS[function], sorted(known)
    if name in foreign:
        hint = f"here it is {foreign[name]}"
    else:
        near = suggest(name, known)
        hint = f"did you mean {near!r}?" if near else f"it has {', '.join(known)}"
    return TypeError(f"{function} has no argument {name!r}; {hint}")


def unknown_attribute(kind: str, name: str, given: object) -> AttributeError:
    """The error for an attribute that does not exist."""
    foreign = _ATTRIBUTES[kind]
    hint = f"; here it is {foreign[name]}" if name in foreign else ""
    return AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=given)


def find_class(name: str) -> str:
    """What to use for a class that treadle does not have; "" if that is not known."""
    return _CLASSES.get(name, "")
