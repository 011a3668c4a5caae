"""The programs that run other commands, and which of their options take a value.

Tells where the inner command begins among a wrapper's words. Used by `wrappers.py`.
"""

import itertools
from collections.abc import Sequence

import msgspec

from treadle.lib.shell.ast import UNKNOWN_ARGUMENTS, SimpleCommand, Word, WrapperKind
from treadle.lib.text.word_set import word_set


class WrapperSpec(msgspec.Struct, frozen=True):
    """How to find the inner command among a wrapper's words."""

    kind: WrapperKind
    flags: frozenset[str] = frozenset()
    value_options: frozenset[str] = frozenset()  # options followed by a value
    operand_count: int = 0  # operands before the inner command


def _make_spec(kind: WrapperKind, flags: str = "", values: str = "", skip: int = 0) -> WrapperSpec:
    return WrapperSpec(kind, word_set(flags), word_set(values), skip)


WRAPPERS = {
    "nohup": _make_spec("transparent"),
    "setsid": _make_spec("transparent", "-w --wait -f --fork -c --ctty"),
    "nice": _make_spec("transparent", "", "-n --adjustment"),
    "ionice": _make_spec("transparent", "-t", "-c -n --class --classdata"),
    "timeout": _make_spec(
        "transparent", "--preserve-status --foreground -v --verbose -f -p",
        "-s --signal -k --kill-after", skip=1,
    ),
    "time": _make_spec("transparent", "-p -v --verbose"),
    "stdbuf": _make_spec("transparent", "", "-i -o -e --input --output --error"),
    "command": _make_spec("transparent", "-p"),
    "builtin": _make_spec("transparent"),
    "exec": _make_spec("transparent", "-c -l", "-a"),
    "unbuffer": _make_spec("transparent", "-p"),
    "taskset": _make_spec("transparent", "-c --cpu-list", "", skip=1),
    "chrt": _make_spec("opaque", "-b -f -i -o -r", "", skip=1),
    "coproc": _make_spec("opaque"),
    "sudo": _make_spec(
        "opaque", "-E -n -S -H -k -b -i -s -A -P --preserve-env --non-interactive --stdin",
        "-u --user -g --group -p --prompt -C -D --chdir -h --host -r -t -T -U",
    ),
    "doas": _make_spec("opaque", "-n -s -L", "-u -C"),
    "pkexec": _make_spec("opaque", "--disable-internal-agent", "--user"),
    "chroot": _make_spec("opaque", "--skip-chdir", "--userspec --groups", skip=1),
    "unshare": _make_spec("opaque", "-U -r -m -n -p -f -i -u --fork --pid --user --net --mount"),
    "runuser": _make_spec("opaque", "", "-u --user -g"),
    "nsenter": _make_spec("opaque", "-a -m -n -p -u -i", "-t --target"),
    "setpriv": _make_spec("opaque"),
    "strace": _make_spec("opaque", "-f -ff -c -C -q -t -tt -T -v -y", "-o -e -p -s -u -E -P"),
    "ltrace": _make_spec("opaque", "-f -c -S", "-o -e -p -s -u"),
    "flock": _make_spec("opaque", "-n -x -s -e -u -o --nonblock", "-w -E --timeout", skip=1),
    "watch": _make_spec("opaque", "-d -t -b -e -g -c -x -p", "-n --interval"),
    "entr": _make_spec("opaque", "-c -d -n -p -r -s -z"),
    "proot": _make_spec("opaque", "", "-r -b -w"),
    "faketime": _make_spec("opaque", "", "-f", skip=1),
    "xvfb-run": _make_spec("opaque", "-a", "-n -s"),
    "dbus-run-session": _make_spec("opaque", "--"),
    "bwrap": _make_spec("opaque"),
    "firejail": _make_spec("opaque"),
    **dict.fromkeys(("busybox", "toybox", "coreutils"), _make_spec("opaque")),
    "xargs": _make_spec(
        "transparent", "-0 --null -r --no-run-if-empty -t --verbose -x --exit -p",
        "-n --max-args -P --max-procs -L --max-lines -I --replace -d --delimiter -s --max-chars -E",
    ),
    "parallel": _make_spec("opaque", "-0 -k --keep-order", "-j --jobs -n -I"),
}  # fmt: skip


def parse_time_options(words: list[Word], is_redirected: bool) -> tuple[list[Word], list[str]]:
    """The words after the keyword `time`, which takes one `-p` and any number of `!`.

    After a redirection neither is a keyword or option any more, but the name of a command.
    """
    before = len(words)
    words = words[1:] if words and words[0].source == "-p" else words
    while words and words[0].source == "!":
        words = words[1:]
    is_odd = words and ((words[0].text or "").startswith("-") or words[0].source in "{}")
    is_odd = is_odd or (is_redirected and len(words) < before)
    return words, ["`time` before something that is not a simple command"] if is_odd else []


def replace_placeholders(command: SimpleCommand, words: Sequence[Word]) -> list[Word]:
    """`xargs -I% …`: a word with the placeholder in it is known only at run time."""
    options = [w.text or "" for w in command.argv[1:]]
    marks = {"{"}  # the default of parallel and xargs
    for option, following in itertools.pairwise(options):
        if option.startswith("--replace"):
            marks.add(option.partition("=")[2])
        elif option[:2] in ("-I", "-i"):
            marks.add(option[2:] or following)
    return [
        UNKNOWN_ARGUMENTS if any(m and m in (w.text or "") for m in marks) else w for w in words
    ]


def is_known_option(text: str, wrapper: WrapperSpec, name: str) -> bool:
    """Whether the table knows an option, alone or with its value joined to it."""
    head = text.partition("=")[0]
    if text in wrapper.flags or head in wrapper.value_options or head in wrapper.flags:
        return True
    if text[:2] in wrapper.value_options and not text.startswith("--"):
        return True  # -n5
    if name == "nice" and text[1:].isdigit():
        return True
    return not text.startswith("--") and all("-" + c in wrapper.flags for c in text[1:])
