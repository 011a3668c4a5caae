"""Runs a program of the model in the sandbox: its calls of tools go to the engine, by a pipe.

Not imported: the text of this file is run by `python3 -I -c`. It needs the standard library only,
of Python 3.8 or later. What it writes are lines `@treadle NUMBER MORE JSON`, each of which the
engine answers with a line; program.py is the other side. What the program prints is kept here, up
to a limit, and sent at its end.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import sys
import traceback
from typing import Any, Callable, Sequence  # noqa: UP035 - of Python 3.8

CHUNK = 8000  # the engine sees at least this much of the end of the output
MAX_PRINTED = 18_000


# A call of a tool that failed, or was denied: the program's own class, which is not the engine's.
FailedCall: type[Exception] = type("ToolError", (Exception,), {"__module__": "__main__"})


class Printed(io.TextIOBase):
    """The first characters of what is printed, and how many there were."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.kept = self.total = 0

    def write(self, text: str) -> int:
        self.total += len(text)
        part = text[: max(0, MAX_PRINTED - self.kept)]
        if part:
            self.parts.append(part)
            self.kept += len(part)
        return len(text)

    def get_text(self) -> str:
        left = self.total - self.kept
        note = f"\n... [{left} more characters were printed; print less]"
        return "".join(self.parts) + (note if left else "")


class Engine:
    def __init__(self) -> None:
        self._output, self._count = os.dup(1), 0
        self._input = os.fdopen(os.dup(0), encoding="utf-8", newline="\n")
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)

    def read(self) -> Any:
        line = self._input.readline()
        if not line:
            os._exit(1)  # the engine is gone
        return json.loads(line)

    def send(self, message: object) -> None:
        text = json.dumps(message)
        starts = range(0, len(text), CHUNK)
        for start in starts:
            self._count += 1
            more = int(start != starts[-1])
            part = text[start : start + CHUNK]
            data = f"@treadle {self._count} {more} {part}\n".encode()
            while data:
                data = data[os.write(self._output, data) :]
            if more:
                self.read()

    def call_all(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        """The results of several calls, [("read", {"file_path": "a.py"}), ...], made side by side;
        in place of a failed one its ToolError."""
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        if not listed:
            return []
        self.send({"calls": listed})
        results = self.read()["results"]
        return [FailedCall(one["text"]) if one["is_error"] else one["text"] for one in results]

    def make_function(self, name: str, parameters: list[str]) -> Callable[..., str]:
        def call(*values: Any, **arguments: Any) -> str:
            if len(values) > len(parameters):
                raise TypeError("{} takes {}".format(name, ", ".join(parameters)))
            arguments.update(zip(parameters, values))  # noqa: B905 - of Python 3.10
            (result,) = self.call_all([(name, arguments)])
            if isinstance(result, FailedCall):
                raise result
            return str(result)

        call.__name__ = name
        return call


def main() -> None:
    engine = Engine()
    given, printed, error = engine.read(), Printed(), ""
    sys.stdout = sys.stderr = printed
    names: dict[str, Any] = {
        "__name__": "__main__",
        "ToolError": FailedCall,
        "call_all": engine.call_all,
    }
    for name, parameters in given["tools"].items():
        names[name] = engine.make_function(name, parameters)
    code = given["code"]
    linecache.cache["program"] = len(code), None, code.splitlines(True), "program"
    try:
        exec(compile(code, "program", "exec"), names)
    except SystemExit as end:
        error = "" if end.code in (None, 0) else f"exit: {end.code}"
    except BaseException as failure:  # noqa: BLE001 - it is told to the model
        frames = failure.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != "program":
            frames = frames.tb_next
        error = "".join(traceback.format_exception(type(failure), failure, frames, limit=-6))
    engine.send({"printed": printed.get_text(), "error": error[-4000:]})


if __name__ == "__main__":
    main()
