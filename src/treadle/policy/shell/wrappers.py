"""Commands that run other commands: the inner ones, so that rules see through the outer.

A transparent wrapper (`timeout`, `env`, `bash -c`) changes nothing that a rule is about: it is
allowed when what it runs is. An opaque one (`sudo`, `ssh`) needs a rule of its own as well.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from treadle.policy.shell.facts import Assignment, Part, Redirect, Word, Wrapping
from treadle.policy.shell.git import git_line, leads_out
from treadle.policy.shell.prefixes import (
    UNKNOWN_WORDS,
    WRAPPERS,
    Wrapper,
    filled_in,
    known_option,
    timed,
)

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh", "yash", "pdksh"})
_OTHER_SHELLS = frozenset(
    {
        "zsh",
        "ksh",
        "mksh",
        "yash",
        "pdksh",
        "csh",
        "tcsh",
        "fish",
        "nu",
        "elvish",
        "xonsh",
        "pwsh",
        "rc",
        "es",
    }
)
NESTED = "nested too deep"
_STREAM = re.compile(r"/dev/(?:stdin|fd/)|/proc/(?:self|thread-self|\d+)/fd/")
_ONLY_BASH = re.compile(
    r"""\$['"]|\[\[|(?<!\$)\(\(|&>|\|&|[<>]\(|<<<|\b(?:function|select|coproc)\b"""
)
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


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
    if name in SHELLS - _OTHER_SHELLS:
        return _shell(part, depth)
    base = name.rpartition("/")[2]
    if base in SHELLS or name in _OTHER_SHELLS:
        found = _shell(part, depth)
        return _with(found, found.inner, "opaque", "a shell of another place or language")
    wrapper = WRAPPERS.get(name)
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
    return unwrap(inner, depth + 1) if depth < 8 else _with(inner, (), "", NESTED)


def _wrapped(part: Part, name: str, wrapper: Wrapper, depth: int) -> Part:
    words, doubts = list(part.argv[1:]), list[str]()
    if part.argv[0].source == "time" and not part.assignments:
        words, unknown = timed(words, bool(part.redirects))
        doubts += unknown
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
            elif not known_option(text, head, wrapper, name):
                doubts.append(f"{name} {text}: what it does is not known")
        else:
            break
    words = words[wrapper.skip :]
    if not words and name == "parallel":
        doubts.append("the lines that it reads are commands")
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
    if name in ("xargs", "parallel") and filled_in(part, words) != words:
        inner.append(_inner(part, filled_in(part, words), depth))
    if name in ("watch", "entr", "parallel", "flock"):
        inner += _script(" ".join(w.text or "$x" for w in words), part, depth)
    if name == "coproc":
        doubts.append("a coprocess")
        # It may begin with a name of its own, and a group: whatever follows could be the command.
        inner += [_inner(part, words[at:], depth) for at in (1, 2) if len(words) > at]
    return _with(part, inner, wrapper.kind, *doubts)


def _script(text: str, part: Part, depth: int) -> list[Part]:
    """The commands of a script given as text; a doubt about the script is one about its parts."""
    # A script is a command line again: the reader of lines and this module call each other.
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
    words, inline, stdin, at = part.argv[1:], False, False, 0
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
        if text in ("--version", "--help"):
            return part
        if not text.startswith("--") and "c" in text[1:]:
            inline = True
        elif not text.startswith("--") and "s" in text[1:]:
            stdin = True
        elif text.startswith("--") and text not in ("--norc", "--noprofile", "--posix", "--login"):
            return _with(part, (), "", f"a shell started with {text}")
        at += 1
    rest = words[at:]
    if inline:
        if not rest or rest[0].text is None or rest[0].glob:
            return _with(part, (), "", "a script that is not static")
        return _with(
            part, _script(rest[0].text, part, depth), "transparent", *_dialect(part, rest[0])
        )
    if rest and not stdin and not _STREAM.match(rest[0].text or ""):
        return part  # a script file: a rule has to name it
    return _with_stdin(part, depth)


def _dialect(part: Part, script: Word) -> tuple[str, ...]:
    """A script in words that only bash knows is another one to a plain shell."""
    plain = program_name(part.argv[0]) not in ("bash", "rbash")
    return (
        ("not every shell reads it alike",)
        if plain and _ONLY_BASH.search(script.text or "")
        else ()
    )


def _with_stdin(part: Part, depth: int) -> Part:
    data = [r for r in part.redirects if r.effect == "data"]
    if data and data[-1].data is not None:
        script = Word(data[-1].data, data[-1].data)
        return _with(
            part, _script(data[-1].data, part, depth), "transparent", *_dialect(part, script)
        )
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
            if text == "--" and words and words[0].text == "-":
                words.pop(0)
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
    return _wrapped(part, "command", WRAPPERS["command"], depth)


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
    inner = _compared(part)
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


def _compared(part: Part) -> list[Part]:
    """A path outside makes `git diff` compare any two files: it reads what the path says."""
    line = git_line(part.argv[1:])
    if line.subcommand is None or line.subcommand.text != "diff":
        return []
    steps = tuple(w.text or "" for w in line.folders)
    moves = None if part.moves is None else tuple((*place, *steps) for place in part.moves)
    return [
        Part((), (), (Redirect("<", "read", word),), word.source, moves)
        for word in line.rest
        if leads_out(word)
    ]


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
    for at, text in enumerate(texts[:-1]):
        if text and (text == "--command" or re.fullmatch(r"-[a-z]*c", text)):
            inner += _script(texts[at + 1] or "$x", part, depth)
    return _with(part, inner, "opaque" if inner else "", "runs as another user")


def _runuser(part: Part, depth: int) -> Part:
    if any((w.text or "").startswith(("-u", "--user")) for w in part.argv):
        return _wrapped(part, "runuser", WRAPPERS["runuser"], depth)
    return _su(part, depth)


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
    "runuser": _runuser,
    "capsh": _su,
    "script": _su,
}
