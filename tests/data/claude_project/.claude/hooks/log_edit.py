"""Prints the tool and the file of an edit."""

import json
import sys
from pathlib import Path

event = json.load(sys.stdin)
path = Path(event["tool_input"]["file_path"])
assert path.is_absolute()
assert event["tool_response"]["filePath"] == str(path)
print(event["tool_name"], path.name, event["tool_response"]["success"])
