"""The words before an inner command: which programs run others, and what their options take.

Says where the inner command begins among a wrapper's words, and no more; `wrappers.py` above takes
it apart in its turn.
"""

import itertools
from collections.abc import Sequence

import msgspec

from treadle.policy.listed import listed
from treadle.policy.shell.facts import Part, Word, Wrapping

UNKNOWN_WORDS = Word("…", None, data=True)  # arguments that arrive only when it runs


class Wrapper(msgspec.Struct, frozen=True):
    """How to find the inner command among a wrapper's words."""

    kind: Wrapping
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()  # options followed by a value
    skip: int = 0  # operands before the inner command


def _wrapper(kind: Wrapping, flags: str = "", values: str = "", skip: int = 0) -> Wrapper:
    return Wrapper(kind, listed(flags), listed(values), skip)


WRAPPERS = {
    "nohup": _wrapper("transparent"),
    "setsid": _wrapper("transparent", "-w --wait -f --fork -c --ctty"),
    "nice": _wrapper("transparent", "", "-n --adjustment"),
    "ionice": _wrapper("transparent", "-t", "-c -n --class --classdata"),
    "timeout": _wrapper(
        "transparent", "--preserve-status --foreground -v --verbose -f -p",
        "-s --signal -k --kill-after", skip=1,
    ),
    "time": _wrapper("transparent", "-p -v --verbose"),
    "stdbuf": _wrapper("transparent", "", "-i -o -e --input --output --error"),
    "command": _wrapper("transparent", "-p"),
    "builtin": _wrapper("transparent"),
    "exec": _wrapper("transparent", "-c -l", "-a"),
    "unbuffer": _wrapper("transparent", "-p"),
    "taskset": _wrapper("transparent", "-c --cpu-list", "", skip=1),
    "chrt": _wrapper("opaque", "-b -f -i -o -r", "", skip=1),
    "coproc": _wrapper("opaque"),
    "sudo": _wrapper(
        "opaque", "-E -n -S -H -k -b -i -s -A -P --preserve-env --non-interactive --stdin",
        "-u --user -g --group -p --prompt -C -D --chdir -h --host -r -t -T -U",
    ),
    "doas": _wrapper("opaque", "-n -s -L", "-u -C"),
    "pkexec": _wrapper("opaque", "--disable-internal-agent", "--user"),
    "chroot": _wrapper("opaque", "--skip-chdir", "--userspec --groups", skip=1),
    "unshare": _wrapper("opaque", "-U -r -m -n -p -f -i -u --fork --pid --user --net --mount"),
    "runuser": _wrapper("opaque", "", "-u --user -g"),
    "nsenter": _wrapper("opaque", "-a -m -n -p -u -i", "-t --target"),
    "setpriv": _wrapper("opaque"),
    "strace": _wrapper("opaque", "-f -ff -c -C -q -t -tt -T -v -y", "-o -e -p -s -u -E -P"),
    "ltrace": _wrapper("opaque", "-f -c -S", "-o -e -p -s -u"),
    "flock": _wrapper("opaque", "-n -x -s -e -u -o --nonblock", "-w -E --timeout", skip=1),
    "watch": _wrapper("opaque", "-d -t -b -e -g -c -x -p", "-n --interval"),
    "entr": _wrapper("opaque", "-c -d -n -p -r -s -z"),
    "proot": _wrapper("opaque", "", "-r -b -w"),
    "faketime": _wrapper("opaque", "", "-f", skip=1),
    "xvfb-run": _wrapper("opaque", "-a", "-n -s"),
    "dbus-run-session": _wrapper("opaque", "--"),
    "bwrap": _wrapper("opaque"),
    "firejail": _wrapper("opaque"),
    "xargs": _wrapper(
        "transparent", "-0 --null -r --no-run-if-empty -t --verbose -x --exit -p",
        "-n --max-args -P --max-procs -L --max-lines -I --replace -d --delimiter -s --max-chars -E",
    ),
    "parallel": _wrapper("opaque", "-0 -k --keep-order", "-j --jobs -n -I"),
}  # fmt: skip


def timed(words: list[Word], redirected: bool) -> tuple[list[Word], list[str]]:
    """What follows the shell's own `time`: it knows one option, once, and may be negated.

    Behind a redirection neither is the shell's word any more, but a command's name.
    """
    given = words
    words = words[1:] if words and words[0].source == "-p" else words
    while words and words[0].source == "!":
        words = words[1:]
    odd = words and ((words[0].text or "").startswith("-") or words[0].source in "{}")
    odd = odd or (redirected and len(words) < len(given))
    return words, ["time of what is not a plain command"] if odd else []


def filled_in(part: Part, words: Sequence[Word]) -> list[Word]:
    """`xargs -I% …`: a word that holds the mark is not known before it runs."""
    options = [w.text or "" for w in part.argv[1:]]
    marks = {"{"}  # what parallel fills in, and xargs unless told otherwise
    for option, following in itertools.pairwise(options):
        if option.startswith("--replace"):
            marks.add(option.partition("=")[2])
        elif option[:2] in ("-I", "-i"):
            marks.add(option[2:] or following)
    return [UNKNOWN_WORDS if any(m and m in (w.text or "") for m in marks) else w for w in words]


def known_option(text: str, head: str, wrapper: Wrapper, name: str) -> bool:
    """Whether an option is one whose meaning is known, its value joined to it if it has one."""
    if text in wrapper.flags or head in wrapper.values or head in wrapper.flags:
        return True
    if text[:2] in wrapper.values and not text.startswith("--"):
        return True  # -n5
    if name == "nice" and text[1:].isdigit():
        return True
    return not text.startswith("--") and all("-" + c in wrapper.flags for c in text[1:])
