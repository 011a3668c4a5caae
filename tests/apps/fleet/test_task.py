import msgspec
import pytest

from treadle.apps.fleet.run_record import FleetResult, FleetRun
from treadle.apps.fleet.task import FleetTask, parse_task
from treadle.core.errors import ConfigError


def test_the_same_content_has_the_same_id():
    one = FleetTask(prompt="Fix it", labels={"a": "1", "b": "2"})
    other = FleetTask(prompt="Fix it", labels={"b": "2", "a": "1"})
    assert one.id == other.id
    assert one.id != FleetTask(prompt="Fix it").id


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": " "}, "the prompt is empty"),
        ({"prompt": "a \ud800", "id": "a"}, "prompt has half a character"),
        ({"prompt": "x", "id": "a/b"}, "'a/b' cannot be an id"),
        ({"prompt": "x", "folder": "a", "archive": "b"}, "folder and archive are both given"),
        ({"prompt": "x", "commit": "abc"}, "a commit is given without a repository"),
        ({"prompt": "x", "max_cost": -1}, "max_cost is -1.0; it must be a number above 0"),
        ({"prompt": "x", "timeout": float("nan")}, "timeout is nan; it must be a number above 0"),
        ({"prompt": "x", "max_turns": 0}, "max_turns is 0; it must be 1 or more"),
        ({"prompt": "x", "permission_mode": "yolo"}, "must be one of plan, ask"),
        ({"prompt": 1}, r"Expected `str`, got `int` - at `\$.prompt`"),
        ({"prompt": "x", "labels": {"a": 1}}, "Expected `str`, got `int`"),
        ({"prompt": "x", "colour": "red"}, "a task has no field 'colour'; it has prompt, id"),
        (["x"], "a task is an object with a prompt"),
    ],
)
def test_a_wrong_field_is_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        parse_task(fields)


def test_a_run_is_the_same_after_it_was_stored():
    run = FleetRun("a", FleetTask(prompt="x"), result=FleetResult("end_turn", cause="timeout"))
    assert msgspec.json.decode(msgspec.json.encode(run), type=FleetRun) == run
