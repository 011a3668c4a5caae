"""Commands that run other commands: the inner ones, so that rules see through the outer.

A transparent wrapper (`timeout`, `env`, `bash -c`) changes nothing that a rule is about: it is
allowed when what it runs is. An opaque one (`sudo`, `ssh`) needs a rule of its own as well.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from treadle.policy.listed import listed
from treadle.policy.shell.facts import Assignment, Part, Word, Wrapping

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh"})
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
UNKNOWN_WORDS = Word("…", None)  # arguments that arrive only when it runs


class _Wrapper(msgspec.Struct, frozen=True):
    """How to find the inner command among a wrapper's words."""

    kind: Wrapping
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()  # options followed by a value
    skip: int = 0  # operands before the inner command


def _wrapper(kind: Wrapping, flags: str = "", values: str = "", skip: int = 0) -> _Wrapper:
    return _Wrapper(kind, listed(flags), listed(values), skip)


_WRAPPERS = {
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
    "runuser": _wrapper("opaque", "", "-u --user -g"),
    "chroot": _wrapper("opaque", "--skip-chdir", "--userspec --groups", skip=1),
    "unshare": _wrapper("opaque", "-U -r -m -n -p -f -i -u --fork --pid --user --net --mount"),
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


def program_name(word: Word | None) -> str | None:
    """The bare name of a program; a path counts as its name only in the system's folders."""
    if word is None or word.text is None or word.glob:
        return None
    text = word.text
    for folder in _SYSTEM:
        if text.startswith(folder) and "/" not in text[len(folder) :]:
            return text[len(folder) :]
    return text


def unwrap(part: Part, depth: int) -> Part:
    """The part, with the commands that it runs in its turn."""
    if not part.argv:
        return part
    name = program_name(part.argv[0])
    if name is None:
        return part
    special = _SPECIAL.get(name)
    if special is not None:
        return special(part, depth)
    if name in SHELLS:
        return _shell(part, depth)
    wrapper = _WRAPPERS.get(name)
    return part if wrapper is None else _wrapped(part, name, wrapper, depth)


def _with(part: Part, inner: Sequence[Part], wrapping: Wrapping, *doubts: str) -> Part:
    return msgspec.structs.replace(
        part, inner=tuple(inner), wrapping=wrapping, doubts=(*part.doubts, *doubts)
    )


def _inner(part: Part, argv: Sequence[Word], depth: int, *assigned: Assignment) -> Part:
    inner = Part(
        tuple(argv), tuple(assigned), (), " ".join(w.source for w in argv), part.moves,
        piped=part.piped,
    )  # fmt: skip
    return unwrap(inner, depth + 1) if depth < 8 else _with(inner, (), "", "nested too deep")


def _wrapped(part: Part, name: str, wrapper: _Wrapper, depth: int) -> Part:
    words, doubts = list(part.argv[1:]), list[str]()
    if part.argv[0].source == "time" and not part.assignments:
        # The shell's own word, which knows one option, once; what follows is the command.
        following = words[1:] if words and words[0].source == "-p" else words
        if following and (following[0].text or "").startswith("-"):
            doubts.append("time with options that the shell does not know")
    while words:
        text = words[0].text
        if text is None:
            doubts.append("an option that is not static")
            words.pop(0)
        elif text == "--":
            words.pop(0)
            break
        elif text.startswith("-") and len(text) > 1:
            words.pop(0)
            head = text.partition("=")[0]
            if text in wrapper.values and words:
                words.pop(0)
            elif not _known_option(text, head, wrapper, name):
                doubts.append(f"{name} {text}: what it does is not known")
        else:
            break
    words = words[wrapper.skip :]
    if not words and name == "xargs":
        words = [Word("echo", "echo")]
    if not words:
        return _with(part, (), "", *doubts)
    assigned: list[Assignment] = []
    while name == "time" and words and re.match(r"[A-Za-z_]\w*\+?=", words[0].source):
        # A word of the shell's own: assignments may follow it.
        variable, _, value = (words[0].text or words[0].source).partition("=")
        known = words.pop(0).text is not None
        assigned.append(Assignment(variable, Word(value, value if known else None)))
    if not words:
        return _with(part, (), "", *doubts, "assignments without a command")
    if name in ("xargs", "parallel", "entr"):
        words.append(UNKNOWN_WORDS)
    inner = [_inner(part, words, depth, *assigned)]
    if name in ("watch", "entr", "parallel", "flock"):
        inner += _script(" ".join(w.text or "$x" for w in words), part, depth)
    if name == "coproc":
        doubts.append("a coprocess")
        # It may begin with a name of its own, and a group: whatever follows could be the command.
        inner += [_inner(part, words[at:], depth) for at in (1, 2) if len(words) > at]
    return _with(part, inner, wrapper.kind, *doubts)


def _known_option(text: str, head: str, wrapper: _Wrapper, name: str) -> bool:
    if text in wrapper.flags or head in wrapper.values or head in wrapper.flags:
        return True
    if text[:2] in wrapper.values and not text.startswith("--"):
        return True  # -n5
    if name == "nice" and text[1:].isdigit():
        return True
    return not text.startswith("--") and all("-" + c in wrapper.flags for c in text[1:])


def _script(text: str, part: Part, depth: int) -> list[Part]:
    """The commands of a script given as text; a doubt about the script is one about its parts."""
    from treadle.policy.shell.tree import read_command

    facts = read_command(text, depth + 1)
    moved = [_moved(p, part) for p in (*facts.parts, *facts.guesses)]
    if facts.doubts:
        moved.append(Part((), source=text, doubts=facts.doubts))
    return moved


def _moved(inner: Part, outer: Part) -> Part:
    """A script starts where its shell stands."""
    if outer.moves is None or inner.moves is None:
        moves = None
    else:
        moves = tuple(
            b if b and b[0].startswith(("/", "~")) else (*a, *b)
            for a in outer.moves
            for b in inner.moves
        )
    return msgspec.structs.replace(inner, moves=moves)


# ---------------------------------------------------------------- wrappers with ways of their own


def _shell(part: Part, depth: int) -> Part:
    """`bash -c SCRIPT`, `bash FILE`, `bash <<EOF`."""
    words, inline, at = part.argv[1:], False, 0
    while at < len(words):
        text = words[at].text
        if text is None:
            return _with(part, (), "", "a shell whose script is not static")
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            if not text.endswith("o"):
                return _with(part, (), "", f"a shell started with {text}")
            at += 2
            continue
        if text[:1] not in ("-", "+") or text in ("-", "--"):
            at += text in ("-", "--")
            break
        if not text.startswith("--") and "c" in text[1:]:
            inline = True
        elif text.startswith("--") and text not in ("--norc", "--noprofile", "--posix", "--login"):
            return _with(part, (), "", f"a shell started with {text}")
        at += 1
    rest = words[at:]
    if inline:
        if not rest or rest[0].text is None or rest[0].glob:
            return _with(part, (), "", "a script that is not static")
        return _with(part, _script(rest[0].text, part, depth), "transparent")
    if rest:
        return part  # a script file: a rule has to name it
    return _with_stdin(part, depth)


def _with_stdin(part: Part, depth: int) -> Part:
    data = [r for r in part.redirects if r.effect == "data"]
    if data and data[-1].data is not None:
        return _with(part, _script(data[-1].data, part, depth), "transparent")
    return _with(part, (), "", "a shell that reads its script from a pipe or a file")


def _eval(part: Part, depth: int) -> Part:
    if any(w.text is None or w.glob or w.tilde for w in part.argv[1:]):
        return _with(part, (), "", "eval of text that is not static")
    text = " ".join(w.text or "" for w in part.argv[1:])
    return _with(part, _script(text, part, depth), "transparent")


def _env(part: Part, depth: int) -> Part:
    words, assigned, doubts = list(part.argv[1:]), list[Assignment](), list[str]()
    while words:
        text = words[0].text
        if text is None:
            doubts.append("an option that is not static")
        elif not text.startswith("-"):
            break
        words.pop(0)
        if text in ("-", "--"):
            break  # what follows are assignments and the command, whatever it looks like
        if text in ("-u", "--unset") and words:
            words.pop(0)
        elif text and text.startswith(("-S", "--split-string")):
            given = text.partition("=")[2] if text.startswith("--") else text[2:]
            if not given and words:
                given = words.pop(0).text or "$x"
            script = _script(given + "".join(f" {w.source}" for w in words), part, depth)
            return _with(part, script, "transparent", "env -S splits words in its own way")
        elif text and not _harmless_env(text):
            doubts.append(f"env {text}: what it does is not known")
    while words and "=" in (words[0].text or ""):
        name, _, value = (words.pop(0).text or "").partition("=")
        assigned.append(Assignment(name, Word(value, value)))
    if words and words[0].text is None:
        doubts.append("a command that is not static")
    if not words:
        return _with(part, (), "", *doubts)
    return _with(part, [_inner(part, words, depth, *assigned)], "transparent", *doubts)


def _harmless_env(text: str) -> bool:
    if text in ("-i", "--ignore-environment", "-v", "--debug"):
        return True
    return text.startswith("--unset=") or (text.startswith("-u") and len(text) > 2)


def _command(part: Part, depth: int) -> Part:
    """`command -v x` only looks; `command x` runs it."""
    if len(part.argv) > 1 and part.argv[1].text in ("-v", "-V"):
        return part
    return _wrapped(part, "command", _WRAPPERS["command"], depth)


def _find(part: Part, depth: int) -> Part:
    inner: list[Part] = []
    words = part.argv[1:]
    for at, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (i for i in range(at + 1, len(words)) if words[i].text in (";", "+")), len(words)
            )
            run = [UNKNOWN_WORDS if "{}" in (w.text or "") else w for w in words[at + 1 : end]]
            if run:
                inner.append(_inner(part, run, depth))
    return _with(part, inner, "opaque") if inner else part


def _fd(part: Part, depth: int) -> Part:
    for at, word in enumerate(part.argv):
        if word.text in ("-x", "-X", "--exec", "--exec-batch") and len(part.argv) > at + 1:
            run = [*part.argv[at + 1 :], UNKNOWN_WORDS]
            return _with(part, [_inner(part, run, depth)], "opaque")
    return part


def _git(part: Part, depth: int) -> Part:
    """Scripts that git is told to run; what else of it executes is for `git.py` to say."""
    texts = [w.text for w in part.argv]
    inner: list[Part] = []
    for at, text in enumerate(texts[:-1]):
        following = texts[at + 1 :]
        if text == "foreach" and "submodule" in texts[:at]:
            script = [t for t in following if t and not t.startswith("--")]
            inner += _script(" ".join(script), part, depth)
        elif text == "run" and "bisect" in texts[:at]:
            inner.append(_inner(part, part.argv[at + 1 :], depth))
        elif text in ("-x", "--exec") and following[0] and "rebase" in texts[:at]:
            inner += _script(following[0], part, depth)
        elif text == "-c" and following[0] and "=!" in following[0]:
            inner += _script(following[0].partition("=!")[2], part, depth)
    return _with(part, inner, "opaque") if inner else part


def _trap(part: Part, depth: int) -> Part:
    if len(part.argv) < 2 or part.argv[1].text is None:
        return part
    inner = _script(part.argv[1].text, part, depth)
    return _with(part, inner, "opaque", "a trap runs later, whatever comes between")


def _alias(part: Part, depth: int) -> Part:
    inner: list[Part] = []
    for word in part.argv[1:]:
        if word.text and "=" in word.text:
            inner += _script(word.text.partition("=")[2], part, depth)
    return _with(part, inner, "opaque", "an alias changes what later commands mean")


def _su(part: Part, depth: int) -> Part:
    texts = [w.text for w in part.argv]
    inner: list[Part] = []
    for flag in ("-c", "--command"):
        if flag in texts[:-1]:
            inner += _script(texts[texts.index(flag) + 1] or "$x", part, depth)
    return _with(part, inner, "opaque" if inner else "", "runs as another user")


_SPECIAL: dict[str, Callable[[Part, int], Part]] = {
    "eval": _eval,
    "env": _env,
    "command": _command,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "git": _git,
    "trap": _trap,
    "alias": _alias,
    "su": _su,
    "script": _su,
}
