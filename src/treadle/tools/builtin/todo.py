"""`todo`: the list of what is to be done, given anew as a whole each time.

Keeps nothing: the last call in the transcript is the list, so it survives whatever the transcript
survives.
"""

from typing import Annotated, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool, visible

Status = Literal["pending", "in_progress", "completed"]
MARKS: dict[Status, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(msgspec.Struct, frozen=True):
    """One step. What else a model adds, such as an id, is passed over."""

    content: Annotated[str, msgspec.Meta(description="What is to be done")]
    status: Status = "pending"


class TodoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    todos: Annotated[list[Todo], msgspec.Meta(description="The whole list, in order")]


class TodoTool(BuiltinTool[TodoArguments]):
    name = "todo"
    form = TodoArguments
    concurrent = False

    def summary(self, arguments: Arguments) -> str:
        todos = arguments.get("todos")
        if not isinstance(todos, list):
            return "[todo]"
        done = sum(isinstance(one, dict) and one.get("status") == "completed" for one in todos)
        return f"[todo: {done} of {len(todos)} done]"

    async def run(self, given: TodoArguments, seat: Seat) -> ToolOutput:
        lines = [f"{MARKS[todo.status]} {todo.content}" for todo in given.todos]
        shown = visible("\n".join(lines)) or "Nothing is to be done."
        left = sum(todo.status != "completed" for todo in given.todos)
        return ToolOutput(f"The list is kept; {left} of {len(lines)} are open.", display=shown)
