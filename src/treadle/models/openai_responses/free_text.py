"""Free text as the input of a tool: a `custom_tool_call`, whose text follows a grammar.

In the transcript it is a call like any other: the text is the `text_argument` of the tool. A model
that is asked like this writes no JSON, in which patches have so many escapes. Used by encoding.py
and decoding.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import ToolCall
from treadle.models.provider_base.encoding import encode_json, encode_json_string
from treadle.models.provider_base.request_limits import make_provider_tool_name

FREE_TEXT_CALL = "custom_tool_call"
CALL_TYPES = ("function_call", FREE_TEXT_CALL)
_OTHER_ARGUMENT = "input"  # of a tool that does not say which of its arguments is a text

FreeTextTools = Mapping[str, str]  # by the name in requests: the argument that is the text


def find_free_text_tools(tools: Sequence[ToolSpec], card: ModelCard) -> FreeTextTools:
    """The tools that this model calls with free text."""
    if "free_text" not in card.abilities:
        return {}
    free = [tool for tool in tools if tool.grammar and not tool.deferred]
    return {make_provider_tool_name(tool.name): tool.text_argument for tool in free}


def encode_free_text_tool(tool: ToolSpec) -> bytes:
    shape = {"type": "grammar", "syntax": "lark", "definition": tool.grammar}
    name = make_provider_tool_name(tool.name)
    return encode_json(
        {"type": "custom", "name": name, "description": tool.description, "format": shape}
    )


def read_free_text(call: ToolCall, free: FreeTextTools) -> str | None:
    """The text of a call of one of these tools; None if it is to be sent as JSON."""
    argument, arguments = free.get(call.name), call.arguments
    if argument is None or arguments is None or arguments.keys() != {argument}:
        return None
    text = arguments[argument]
    return text if isinstance(text, str) else None


class FreeTextArguments:
    """The JSON arguments of one call, while its text arrives: `{"patch":"`, the text, `"}`."""

    end = '"}'

    def __init__(self, name: str, tools: Iterable[ToolSpec]) -> None:
        tool = next((one for one in tools if one.name == name), None)
        argument = (tool.text_argument or _find_only_argument(tool)) if tool else _OTHER_ARGUMENT
        self.start = f'{{{encode_json_string(argument).decode()}:"'

    def escape(self, text: str) -> str:
        return encode_json_string(text).decode()[1:-1]

    def encode(self, text: str) -> str:
        return f"{self.start}{self.escape(text)}{self.end}"


def _find_only_argument(tool: ToolSpec) -> str:
    required = tool.schema.get("required") or (_OTHER_ARGUMENT,)
    return str(required[0])
