"""`todo`: the list of steps, given as a whole each time.

Stores nothing: the last call in the transcript is the list.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite

TodoStatus = Literal["pending", "in_progress", "completed"]
STATUS_MARKS: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}

# Other programs have tools that add one step or change it (TaskCreate, TaskUpdate).
NO_LIST = (
    "todo cannot change a single step: send the whole list in `todos`, each step with its "
    "`content` and `status`"
)


class TodoItem(msgspec.Struct, frozen=True):
    # What else a model adds, such as an id, is passed over. A docstring would be sent to it.
    content: str
    status: TodoStatus = "pending"


class TodoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    todos: Annotated[list[TodoItem], describe("The whole list, in order")]


class TodoTool(BuiltinTool[TodoArguments]):
    name = "todo"
    kind = "plan"
    arguments_type = TodoArguments
    concurrent = False
    aliases = (
        "todo_write", "todo_read", "write_todos", "update_plan", "todo_list", "update_todos",
        "plan", "task_create", "task_update", "task_list",
    )  # fmt: skip
    argument_aliases: ClassVar = {
        "plan": "todos", "items": "todos", "tasks": "todos", "steps": "todos", "list": "todos",
        "step": "content", "text": "content", "task": "content", "title": "content",
        "description": "content", "name": "content", "state": "status",
    }  # fmt: skip
    value_aliases: ClassVar = {
        "status": {
            "done": "completed", "complete": "completed", "finished": "completed",
            "closed": "completed", "todo": "pending", "open": "pending", "not_started": "pending",
            "doing": "in_progress", "active": "in_progress", "started": "in_progress",
            "current": "in_progress", "running": "in_progress",
        }
    }  # fmt: skip

    def check(self, arguments: Arguments) -> str | None:
        names = (self.argument_aliases.get(name, name) for name in arguments)
        problem = super().check(arguments)
        return problem if problem is None or "todos" in names else f"{problem}\n{NO_LIST}"

    def summary(self, arguments: Arguments) -> str:
        todos = arguments.get("todos")
        if not isinstance(todos, list):
            return "[todo]"
        done = sum(isinstance(todo, dict) and todo.get("status") == "completed" for todo in todos)
        return f"[todo: {done} of {len(todos)} done]"

    async def run(self, args: TodoArguments, site: CallSite) -> ToolOutput:
        lines = [f"{STATUS_MARKS[todo.status]} {todo.content}" for todo in args.todos]
        shown = escape_multiline("\n".join(lines)) or "The list is empty."
        left = sum(todo.status != "completed" for todo in args.todos)
        return ToolOutput(f"The list is saved; {left} of {len(lines)} are open.", display=shown)
