"""`Assisted`: the engine's aids around a small model, in a layer of their own.

The folder's page (__init__.py) says what the aids are. assembly/model_choice.py puts this layer
around small models; the setting `assist` turns it off.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

import msgspec

from treadle.core.contracts.model import ModelEvent, ModelRequest, ModelTextDelta
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.transcript.content import ENGINE, AssistantContent, Text
from treadle.core.transcript.items import StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.embedded import prompt_text as prompt
from treadle.models.embedded.aids import answer_template, repair, tool_choice
from treadle.models.embedded.few_shot import is_small_talk
from treadle.models.embedded.grammar import ParsedReply
from treadle.models.embedded.model import (
    Embedded,
    ParsedCompletion,
    build_call,
    list_call_events,
    select_tools,
    to_usage,
)
from treadle.models.embedded.server import CompletionChunk
from treadle.models.embedded.small_toolset import SmallTool

MAX_CONTENT_TOKENS = 800  # of a file
NOT_DONE = (
    "This is not done. {note} With a key of a provider, which `treadle login` stores, a large "
    "model does it. `treadle tour` shows what the program does, without a model."
)
# What a weak model answers to small talk.
ABILITIES = (
    "{note}\n\nAsk for example: “What files are here?”, “Show me README.md”, “Where is parse_date "
    "used?”, “Run the tests”, “Make the tests pass”.\n\nWith a key of a provider, which `treadle "
    "login` stores, a large model does any of your work. `treadle tour` shows what the program "
    "does, without a model."
)


class Assisted(WrappedModel):
    """A small model with the aids of the engine."""

    def __init__(self, model: Embedded) -> None:
        super().__init__(model)
        self._embedded = model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async with contextlib.aclosing(self._stream(request)) as events:
            async for event in events:
                yield event

    def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        tools = select_tools(request)
        if not tools or request.options.output_schema is not None:
            return self._embedded.stream(request)
        state = repair.read_repair_state(request.transcript, tools)
        if state is not None:
            return self._stream_repair(state)
        return self._stream_step(request, tools)

    async def _stream_step(
        self, request: ModelRequest, tools: Sequence[SmallTool]
    ) -> AsyncGenerator[ModelEvent, None]:
        """One call, or an answer; a weak model chooses the call, and the engine answers."""
        must_call = request.options.tool_choice not in ("auto", "none")
        is_capable = self._embedded.is_capable
        choose = tool_choice.narrow_tools if is_capable else tool_choice.choose_tools
        chosen = choose(request.transcript, tools)
        if is_capable:
            chosen = msgspec.structs.replace(chosen, tools=_without_contents(chosen.tools))
        if must_call:
            chosen = tool_choice.ToolChoice(tuple(tools), may_answer=False)
        if chosen.forced_call is not None:
            for event in self._list_forced_events(*chosen.forced_call):
                yield event
            return
        if not chosen.tools:
            for event in self._list_conclusion_events(request, tools):
                yield event
            return
        usage, allowed = Usage(), chosen
        for _ in range(2):  # after a repeated call, only an answer
            stream = self._embedded.stream_choice(
                request, tools, allowed.tools, may_answer=allowed.may_answer, guided=not is_capable
            )
            async with contextlib.aclosing(stream) as outputs:
                async for output in outputs:
                    if isinstance(output, ModelTextDelta) and not is_capable:
                        break
                    if not isinstance(output, ParsedCompletion):
                        yield output
            if not isinstance(output, ParsedCompletion):  # a weak model wants to answer
                for event in self._list_conclusion_events(request, tools):
                    yield event
                return
            usage = usage + output.usage
            if (unread := _find_unread_file(request, tools, output.parsed)) is not None:
                for event in self._list_forced_events(*unread, usage):
                    yield event
                return
            is_new = must_call or not _is_repeated(request, chosen.tools, output.parsed)
            if not output.parsed.tool:
                for event in self._list_answer_events(request, output.parsed, usage):
                    yield event
                return
            if is_new:
                parsed = _fit_edit(request, output.parsed)
                if parsed.tool == "write" and "content" not in parsed.arguments:
                    parsed, more = await self._write_content(request, tools, parsed)
                    usage = usage + more
                for event in self._embedded.list_events(parsed, tools, usage):
                    yield event
                return
            allowed = tool_choice.ToolChoice(())

    async def _write_content(
        self, request: ModelRequest, tools: Sequence[SmallTool], parsed: ParsedReply
    ) -> tuple[ParsedReply, Usage]:
        """The call with the content of the file, which the model writes as plain text: in a string
        of JSON it leaves out the line breaks."""
        path = str(parsed.arguments.get("path", ""))
        text = await self._embedded.build_prompt(request, tools, guided=False)
        turn = tool_choice.read_current_turn(request.transcript)
        ending = path.rpartition(".")[2]
        sources = tool_choice.read_sources(turn, tools)
        used = [one for one in sources if one.endswith(f".{ending}") and one != path]
        # Without these words it copies what it was shown.
        imports = f", which imports what it needs from {', '.join(used)}" if used else ""
        text += prompt.start_reply(f"The whole content of {path}{imports}:\n```\n")
        last = await self._embedded.server.complete_text(
            text, n_predict=MAX_CONTENT_TOKENS, temperature=0.0, stop=["\n```"]
        )
        usage = msgspec.structs.replace(to_usage(last), requests=0)
        if last.is_cut or not last.text.strip():
            return ParsedReply(is_cut=True), usage
        content = last.text.strip("\n") + "\n"
        arguments = {**parsed.arguments, "content": content}
        return msgspec.structs.replace(parsed, arguments=arguments), usage

    def _list_answer_events(
        self, request: ModelRequest, parsed: ParsedReply, usage: Usage
    ) -> list[ModelEvent]:
        """The end of an answer. One instead of the change that was asked for says so."""
        turn = tool_choice.read_current_turn(request.transcript)
        if tool_choice.is_denied(turn) or not tool_choice.lacks_change(turn):
            return self._embedded.list_events(parsed, (), usage)
        note = NOT_DONE.format(note=self.card.note)
        content: list[AssistantContent] = [Text(parsed.answer)] if parsed.answer else []
        note = f"\n\n{note}" if content else note
        content.append(Text(note, ENGINE))
        return [ModelTextDelta(note, ENGINE), self._embedded.build_reply(content, "refusal", usage)]

    def _list_forced_events(
        self, tool: SmallTool, arguments: dict[str, str], usage: Usage | None = None
    ) -> list[ModelEvent]:
        call = msgspec.structs.replace(build_call(tool, arguments), by=ENGINE)
        usage = usage or Usage(requests=1, cost=0.0)
        return [*list_call_events(call), self._embedded.build_reply([call], "tool_use", usage)]

    def _list_conclusion_events(
        self, request: ModelRequest, tools: Sequence[SmallTool]
    ) -> list[ModelEvent]:
        """The engine's answer: what was changed, or for a weak model, what was found."""
        turn = tool_choice.read_current_turn(request.transcript)
        stop: StopReason = "end_turn"
        if self._embedded.is_capable:
            text = answer_template.describe_changes(turn, tools)
        elif is_small_talk(turn.user_text):
            text = ABILITIES.format(note=self.card.note)
        else:
            text = answer_template.describe_results(turn, tools)
            if not tool_choice.is_denied(turn):
                is_found = bool(turn.results) and not tool_choice.lacks_change(turn)
                if not is_found or not tool_choice.is_understood(turn.user_text, tools):
                    note = NOT_DONE.format(note=self.card.note)
                    text = f"{text}\n\n{note}" if is_found else note
                    stop = "refusal"
                elif all(result.is_error for result in turn.results):
                    stop = "refusal"
        return [
            ModelTextDelta(text, ENGINE),
            self._embedded.build_reply([Text(text, ENGINE)], stop, Usage(requests=1, cost=0.0)),
        ]

    async def _stream_repair(self, state: repair.RepairState) -> AsyncGenerator[ModelEvent, None]:
        """The next step of a repair: the model writes the lines, the engine does the rest."""
        usage = Usage(requests=1)
        async for event in self._embedded.announce_slow_prefix(repair.INSTRUCTION):
            yield event
        steps = repair.find_next_step(state, self._embedded.server)
        async with contextlib.aclosing(steps) as outputs:
            async for output in outputs:
                if isinstance(output, CompletionChunk):
                    usage = usage + msgspec.structs.replace(to_usage(output), requests=0)
        assert isinstance(output, repair.RepairStep)
        content: list[AssistantContent] = []
        if output.text:
            yield ModelTextDelta(output.text, ENGINE)
            content.append(Text(output.text, ENGINE))
        if output.record is not None:
            content.append(output.record.to_part())
        for tool, arguments in output.calls:
            call = msgspec.structs.replace(build_call(tool, arguments), by=ENGINE)
            content.append(call)
            for event in list_call_events(call):
                yield event
        stop: StopReason = "tool_use" if output.calls else "end_turn"
        if output.has_failed:
            stop = "refusal"
        yield self._embedded.build_reply(content, stop, usage)


def _is_repeated(request: ModelRequest, tools: Sequence[SmallTool], parsed: ParsedReply) -> bool:
    """Whether this call was made before, and nothing was changed since."""
    tool = next((one for one in tools if one.short_name == parsed.tool), None)
    if tool is None:
        return False
    call = build_call(tool, parsed.arguments)
    earlier = tool_choice.list_calls_since_change(request.transcript)
    return any((one.name, one.arguments) == (call.name, call.arguments) for one in earlier)


def _without_contents(tools: Sequence[SmallTool]) -> tuple[SmallTool, ...]:
    """The tools, where a file is written by its path alone: its content comes afterwards."""
    return tuple(
        msgspec.structs.replace(tool, fields=tool.fields[:1])
        if tool.short_name == "write"
        else tool
        for tool in tools
    )


def _find_unread_file(
    request: ModelRequest, tools: Sequence[SmallTool], parsed: ParsedReply
) -> tuple[SmallTool, dict[str, str]] | None:
    """The call that reads the file of an edit: a model cannot know a text that it has not seen."""
    path = str(parsed.arguments.get("path", ""))
    readers = [tool for tool in tools if tool.short_name == "read"]
    turn = tool_choice.read_current_turn(request.transcript)
    if parsed.tool != "edit" or not readers or path in tool_choice.list_paths(turn, tools):
        return None
    return readers[0], {"path": path}


def _fit_edit(request: ModelRequest, parsed: ParsedReply) -> ParsedReply:
    """A text that the user named is replaced wherever it is: a name has a use, too. A line without
    its indent is replaced by one without."""
    old, new = (str(parsed.arguments.get(name, "")) for name in ("old", "new"))
    if parsed.tool != "edit" or not old or "\n" in old:
        return parsed
    turn = tool_choice.read_current_turn(request.transcript)
    arguments = {**parsed.arguments, "all": old in turn.user_text}
    if old == old.strip():
        arguments["new"] = new.strip() if "\n" not in new.strip() else new.lstrip(" \t")
    return msgspec.structs.replace(parsed, arguments=arguments)
