"""Commands that run other commands: the inner ones, so that rules see through the outer.

A transparent wrapper (`timeout`, `env`, `bash -c`) changes nothing that a rule is about: it is
allowed when what it runs is. An opaque one (`sudo`, `ssh`) needs a rule of its own as well.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from treadle.policy.shell.analysis.git import may_leave_folder, parse_git_command
from treadle.policy.shell.ast import Assignment, Redirect, SimpleCommand, Word, WrapperKind
from treadle.policy.shell.wrapper_options import (
    UNKNOWN_ARGUMENTS,
    WRAPPERS,
    WrapperSpec,
    is_known_option,
    parse_time_options,
    replace_placeholders,
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
TOO_DEEP = "nested too deep"
_DESCRIPTOR_PATH = re.compile(r"/dev/(?:stdin|fd/)|/proc/(?:self|thread-self|\d+)/fd/")
_BASHISM = re.compile(
    r"""\$['"]|\[\[|(?<!\$)\(\(|&>|\|&|[<>]\(|<<<|\b(?:function|select|coproc)\b"""
)
_SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


def get_program_name(word: Word | None) -> str | None:
    """The bare name of a program; a path counts as its name only in the system's folders."""
    if word is None or word.text is None or word.is_glob:
        return None
    text = word.text
    for folder in _SYSTEM_FOLDERS:
        if text.startswith(folder) and "/" not in text[len(folder) :]:
            return text[len(folder) :]
    return text


def unwrap(command: SimpleCommand, depth: int) -> SimpleCommand:
    """The part, with the commands that it runs in its turn."""
    if not command.argv:
        return command
    name = get_program_name(command.argv[0])
    if name is None:
        return command
    special = _UNWRAPPERS.get(name)
    if special is not None:
        return special(command, depth)
    if name in SHELLS - _OTHER_SHELLS:
        return _unwrap_shell(command, depth)
    base = name.rpartition("/")[2]
    if base in SHELLS or name in _OTHER_SHELLS:
        found = _unwrap_shell(command, depth)
        return _replace_inner(found, found.inner, "opaque", "a shell of another place or language")
    wrapper = WRAPPERS.get(name)
    return command if wrapper is None else _unwrap_by_spec(command, name, wrapper, depth)


def _replace_inner(
    command: SimpleCommand, inner: Sequence[SimpleCommand], wrapper_kind: WrapperKind, *doubts: str
) -> SimpleCommand:
    return msgspec.structs.replace(
        command, inner=tuple(inner), wrapper_kind=wrapper_kind, doubts=(*command.doubts, *doubts)
    )


def _make_inner(
    command: SimpleCommand, argv: Sequence[Word], depth: int, *assignments: Assignment
) -> SimpleCommand:
    inner = SimpleCommand(
        tuple(argv), tuple(assignments), (), " ".join(w.source for w in argv), command.cd_paths,
        is_piped=command.is_piped,
    )  # fmt: skip
    return unwrap(inner, depth + 1) if depth < 8 else _replace_inner(inner, (), "", TOO_DEEP)


def _unwrap_by_spec(
    command: SimpleCommand, name: str, spec: WrapperSpec, depth: int
) -> SimpleCommand:
    words, doubts = list(command.argv[1:]), list[str]()
    if command.argv[0].source == "time" and not command.assignments:
        words, unknown = parse_time_options(words, bool(command.redirects))
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
            if text in spec.value_options and words:
                words.pop(0)
            elif not is_known_option(text, head, spec, name):
                doubts.append(f"{name} {text}: what it does is not known")
        else:
            break
    words = words[spec.operand_count :]
    if not words and name == "parallel":
        doubts.append("the lines that it reads are commands")
    if not words and name == "xargs":
        words = [Word("echo", "echo")]
    if not words:
        return _replace_inner(command, (), "", *doubts)
    assigned: list[Assignment] = []
    while name == "time" and words and re.match(r"[A-Za-z_]\w*\+?=", words[0].source):
        # A word of the shell's own: assignments may follow it.
        variable, _, value = (words[0].text or words[0].source).partition("=")
        known = words.pop(0).text is not None
        assigned.append(Assignment(variable, Word(value, value if known else None)))
    if not words:
        return _replace_inner(command, (), "", *doubts, "assignments without a command")
    if name in ("xargs", "parallel", "entr"):
        words.append(UNKNOWN_ARGUMENTS)
    inner = [_make_inner(command, words, depth, *assigned)]
    if name in ("xargs", "parallel") and replace_placeholders(command, words) != words:
        inner.append(_make_inner(command, replace_placeholders(command, words), depth))
    if name in ("watch", "entr", "parallel", "flock"):
        inner += _parse_script(" ".join(w.text or "$x" for w in words), command, depth)
    if name == "coproc":
        doubts.append("a coprocess")
        # It may begin with a name of its own, and a group: whatever follows could be the command.
        inner += [_make_inner(command, words[at:], depth) for at in (1, 2) if len(words) > at]
    return _replace_inner(command, inner, spec.kind, *doubts)


def _parse_script(text: str, command: SimpleCommand, depth: int) -> list[SimpleCommand]:
    """The commands of a script given as text; a doubt about the script is one about its parts."""
    # A script is a command line again: the reader of lines and this module call each other.
    from treadle.policy.shell.syntax.parser import parse_command

    facts = parse_command(text, depth + 1)
    moved = [_prepend_cd_paths(p, command) for p in (*facts.commands, *facts.guessed_commands)]
    if facts.doubts:
        moved.append(SimpleCommand((), source=text, doubts=facts.doubts))
    return moved


def _prepend_cd_paths(inner: SimpleCommand, outer: SimpleCommand) -> SimpleCommand:
    """A script starts where its shell stands."""
    if outer.cd_paths is None or inner.cd_paths is None:
        moves = None
    else:
        moves = tuple(
            b if b and b[0].startswith(("/", "~")) else (*a, *b)
            for a in outer.cd_paths
            for b in inner.cd_paths
        )
    return msgspec.structs.replace(inner, cd_paths=moves)


# ---------------------------------------------------------------- wrappers with ways of their own


def _unwrap_shell(command: SimpleCommand, depth: int) -> SimpleCommand:
    """`bash -c SCRIPT`, `bash FILE`, `bash <<EOF`."""
    words, inline, stdin, at = command.argv[1:], False, False, 0
    while at < len(words):
        text = words[at].text
        if text is None:
            return _replace_inner(command, (), "", "a shell whose script is not static")
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            if not text.endswith("o"):
                return _replace_inner(command, (), "", f"a shell started with {text}")
            at += 2
            continue
        if text[:1] not in ("-", "+") or text in ("-", "--"):
            at += text in ("-", "--")
            break
        if text in ("--version", "--help"):
            return command
        if not text.startswith("--") and "c" in text[1:]:
            inline = True
        elif not text.startswith("--") and "s" in text[1:]:
            stdin = True
        elif text.startswith("--") and text not in ("--norc", "--noprofile", "--posix", "--login"):
            return _replace_inner(command, (), "", f"a shell started with {text}")
        at += 1
    rest = words[at:]
    if inline:
        if not rest or rest[0].text is None or rest[0].is_glob:
            return _replace_inner(command, (), "", "a script that is not static")
        return _replace_inner(
            command,
            _parse_script(rest[0].text, command, depth),
            "transparent",
            *_check_dialect(command, rest[0]),
        )
    if rest and not stdin and not _DESCRIPTOR_PATH.match(rest[0].text or ""):
        return command  # a script file: a rule has to name it
    return _unwrap_stdin_script(command, depth)


def _check_dialect(command: SimpleCommand, script: Word) -> tuple[str, ...]:
    """A script in words that only bash knows is another one to a plain shell."""
    plain = get_program_name(command.argv[0]) not in ("bash", "rbash")
    return (
        ("not every shell reads it alike",) if plain and _BASHISM.search(script.text or "") else ()
    )


def _unwrap_stdin_script(command: SimpleCommand, depth: int) -> SimpleCommand:
    data = [r for r in command.redirects if r.effect == "data"]
    if data and data[-1].data is not None:
        script = Word(data[-1].data, data[-1].data)
        return _replace_inner(
            command,
            _parse_script(data[-1].data, command, depth),
            "transparent",
            *_check_dialect(command, script),
        )
    return _replace_inner(command, (), "", "a shell that reads its script from a pipe or a file")


def _unwrap_eval(command: SimpleCommand, depth: int) -> SimpleCommand:
    if any(w.text is None or w.is_glob or w.has_tilde for w in command.argv[1:]):
        return _replace_inner(command, (), "", "eval of text that is not static")
    text = " ".join(w.text or "" for w in command.argv[1:])
    return _replace_inner(command, _parse_script(text, command, depth), "transparent")


def _unwrap_env(command: SimpleCommand, depth: int) -> SimpleCommand:
    words, assigned, doubts = list(command.argv[1:]), list[Assignment](), list[str]()
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
            script = _parse_script(given + "".join(f" {w.source}" for w in words), command, depth)
            return _replace_inner(
                command, script, "transparent", "env -S splits words in its own way"
            )
        elif text and not _is_safe_env_option(text):
            doubts.append(f"env {text}: what it does is not known")
    while words and "=" in (words[0].text or ""):
        name, _, value = (words.pop(0).text or "").partition("=")
        assigned.append(Assignment(name, Word(value, value)))
    if words and words[0].text is None:
        doubts.append("a command that is not static")
    if not words:
        return _replace_inner(command, (), "", *doubts)
    return _replace_inner(
        command, [_make_inner(command, words, depth, *assigned)], "transparent", *doubts
    )


def _is_safe_env_option(text: str) -> bool:
    if text in ("-i", "--ignore-environment", "-v", "--debug"):
        return True
    return text.startswith("--unset=") or (text.startswith("-u") and len(text) > 2)


def _unwrap_command(command: SimpleCommand, depth: int) -> SimpleCommand:
    """`command -v x` only looks; `command x` runs it."""
    if len(command.argv) > 1 and command.argv[1].text in ("-v", "-V"):
        return command
    return _unwrap_by_spec(command, "command", WRAPPERS["command"], depth)


def _unwrap_find(command: SimpleCommand, depth: int) -> SimpleCommand:
    inner: list[SimpleCommand] = []
    words = command.argv[1:]
    for at, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (i for i in range(at + 1, len(words)) if words[i].text in (";", "+")), len(words)
            )
            run = [UNKNOWN_ARGUMENTS if "{}" in (w.text or "") else w for w in words[at + 1 : end]]
            if run:
                inner.append(_make_inner(command, run, depth))
    return _replace_inner(command, inner, "opaque") if inner else command


def _unwrap_fd(command: SimpleCommand, depth: int) -> SimpleCommand:
    for at, word in enumerate(command.argv):
        if word.text in ("-x", "-X", "--exec", "--exec-batch") and len(command.argv) > at + 1:
            run = [*command.argv[at + 1 :], UNKNOWN_ARGUMENTS]
            return _replace_inner(command, [_make_inner(command, run, depth)], "opaque")
    return command


def _unwrap_git(command: SimpleCommand, depth: int) -> SimpleCommand:
    """Scripts that git is told to run; what else of it executes is for `analysis/git.py` to say."""
    texts = [w.text for w in command.argv]
    inner = _find_diff_paths(command)
    for at, text in enumerate(texts[:-1]):
        following = texts[at + 1 :]
        if text == "foreach" and "submodule" in texts[:at]:
            script = [t for t in following if t and not t.startswith("--")]
            inner += _parse_script(" ".join(script), command, depth)
        elif text == "run" and "bisect" in texts[:at]:
            inner.append(_make_inner(command, command.argv[at + 1 :], depth))
        elif text in ("-x", "--exec") and following[0] and "rebase" in texts[:at]:
            inner += _parse_script(following[0], command, depth)
        elif text == "-c" and following[0] and "=!" in following[0]:
            inner += _parse_script(following[0].partition("=!")[2], command, depth)
    return _replace_inner(command, inner, "opaque") if inner else command


def _find_diff_paths(command: SimpleCommand) -> list[SimpleCommand]:
    """A path outside makes `git diff` compare any two files: it reads what the path says."""
    line = parse_git_command(command.argv[1:])
    if line.subcommand is None or line.subcommand.text != "diff":
        return []
    steps = tuple(w.text or "" for w in line.folders)
    moves = (
        None if command.cd_paths is None else tuple((*place, *steps) for place in command.cd_paths)
    )
    return [
        SimpleCommand((), (), (Redirect("<", "read", word),), word.source, moves)
        for word in line.arguments
        if may_leave_folder(word)
    ]


def _unwrap_trap(command: SimpleCommand, depth: int) -> SimpleCommand:
    if len(command.argv) < 2 or command.argv[1].text is None:
        return command
    inner = _parse_script(command.argv[1].text, command, depth)
    return _replace_inner(command, inner, "opaque", "a trap runs later, whatever comes between")


def _unwrap_alias(command: SimpleCommand, depth: int) -> SimpleCommand:
    inner: list[SimpleCommand] = []
    for word in command.argv[1:]:
        if word.text and "=" in word.text:
            inner += _parse_script(word.text.partition("=")[2], command, depth)
    return _replace_inner(command, inner, "opaque", "an alias changes what later commands mean")


def _unwrap_su(command: SimpleCommand, depth: int) -> SimpleCommand:
    texts = [w.text for w in command.argv]
    inner: list[SimpleCommand] = []
    for at, text in enumerate(texts[:-1]):
        if text and (text == "--command" or re.fullmatch(r"-[a-z]*c", text)):
            inner += _parse_script(texts[at + 1] or "$x", command, depth)
    return _replace_inner(command, inner, "opaque" if inner else "", "runs as another user")


def _unwrap_runuser(command: SimpleCommand, depth: int) -> SimpleCommand:
    if any((w.text or "").startswith(("-u", "--user")) for w in command.argv):
        return _unwrap_by_spec(command, "runuser", WRAPPERS["runuser"], depth)
    return _unwrap_su(command, depth)


_UNWRAPPERS: dict[str, Callable[[SimpleCommand, int], SimpleCommand]] = {
    "eval": _unwrap_eval,
    "env": _unwrap_env,
    "command": _unwrap_command,
    "find": _unwrap_find,
    "gfind": _unwrap_find,
    "fd": _unwrap_fd,
    "fdfind": _unwrap_fd,
    "git": _unwrap_git,
    "trap": _unwrap_trap,
    "alias": _unwrap_alias,
    "su": _unwrap_su,
    "runuser": _unwrap_runuser,
    "capsh": _unwrap_su,
    "script": _unwrap_su,
}
