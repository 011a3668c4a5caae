"""Commands that run other commands: finds the inner ones, so that rules apply to them too.

A transparent wrapper (`timeout`, `env`, `bash -c`) is allowed when the command inside it is. An
opaque one (`sudo`, `ssh`) needs a rule of its own as well. Scripts inside a command line are parsed
by the function that `syntax/parser.py` passes in.
"""

import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from treadle.lib.shell.analysis.git import may_leave_folder, parse_git_command
from treadle.lib.shell.analysis.programs import describe_command
from treadle.lib.shell.ast import (
    SHELLS,
    UNKNOWN_ARGUMENTS,
    Assignment,
    ParsedCommand,
    Redirect,
    SimpleCommand,
    Word,
    WrapperKind,
)
from treadle.lib.shell.syntax.words import ASSIGNMENT
from treadle.lib.shell.wrapper_options import (
    WRAPPERS,
    WrapperSpec,
    is_known_option,
    parse_time_options,
    replace_placeholders,
)
from treadle.lib.text.word_set import word_set

_OTHER_SHELLS = word_set("zsh ksh mksh yash pdksh csh tcsh fish nu elvish xonsh pwsh rc es")
_MAX_DEPTH = 8
_DESCRIPTOR_PATH = re.compile(r"/dev/(?:stdin|fd/)|/proc/(?:self|thread-self|\d+)/fd/")
_BASHISM = re.compile(
    r"""\$['"]|\[\[|(?<!\$)\(\(|&>|\|&|[<>]\(|<<<|\b(?:function|select|coproc)\b"""
)


ParseScript = Callable[[str, int], ParsedCommand]


class Unwrapper:
    """Finds the commands inside commands. `depth` counts the wrappers around the present ones."""

    def __init__(self, parse: ParseScript, depth: int) -> None:
        self._parse = parse
        self._depth = depth

    def unwrap(self, command: SimpleCommand) -> SimpleCommand:
        """The command, as `describe_command` returns it, with those that it runs as `inner`."""
        name = command.program
        if name is None:
            return command
        special = _UNWRAPPERS.get(name)
        if special is not None:
            return special(self, command)
        if name in SHELLS - _OTHER_SHELLS:
            return self._unwrap_shell(command)
        if name in _OTHER_SHELLS or name.rpartition("/")[2] in SHELLS:
            shell = self._unwrap_shell(command)
            return _set_inner(shell, shell.inner, "opaque", "a shell that is not the system's bash")
        spec = WRAPPERS.get(name)
        return command if spec is None else self._unwrap_by_spec(command, name, spec)

    def _make_inner(
        self, command: SimpleCommand, argv: Sequence[Word], *assignments: Assignment
    ) -> SimpleCommand:
        inner = describe_command(SimpleCommand(
            tuple(argv), tuple(assignments), (), " ".join(w.source for w in argv), command.cd_paths,
            is_piped=command.is_piped,
        ))  # fmt: skip
        if self._depth >= _MAX_DEPTH:
            return replace(inner, doubts=("nested too deep",), is_unread=True)
        return Unwrapper(self._parse, self._depth + 1).unwrap(inner)

    def _parse_script(self, text: str, command: SimpleCommand) -> list[SimpleCommand]:
        """The commands of a script; its doubts are added as a command without words."""
        parsed = self._parse(text, self._depth + 1)
        inner = [
            _prepend_cd_paths(c, command) for c in (*parsed.commands, *parsed.guessed_commands)
        ]
        if parsed.doubts:
            inner.append(SimpleCommand((), source=text, doubts=parsed.doubts))
        return inner

    # ---------------------------------------------------------------- wrappers of the table

    def _unwrap_by_spec(
        self, command: SimpleCommand, name: str, spec: WrapperSpec
    ) -> SimpleCommand:
        words, doubts = _skip_wrapper_options(command, name, spec)
        if not words and name == "parallel":
            doubts.append("the lines that it reads are commands")
        if not words and name == "xargs":
            words = [Word("echo", "echo")]
        if not words:
            return _set_inner(command, (), "", *doubts)
        assigned: list[Assignment] = []
        while name == "time" and words and ASSIGNMENT.match(words[0].source):
            # `time` is a keyword of the shell: assignments may follow it.
            variable, _, value = (words[0].text or words[0].source).partition("=")
            known = words.pop(0).text is not None
            assigned.append(Assignment(variable, Word(value, value if known else None)))
        if not words:
            return _set_inner(command, (), "", *doubts, "assignments without a command")
        if name in ("xargs", "parallel", "entr"):
            words.append(UNKNOWN_ARGUMENTS)
        inner = [self._make_inner(command, words, *assigned)]
        if name in ("xargs", "parallel") and replace_placeholders(command, words) != words:
            inner.append(self._make_inner(command, replace_placeholders(command, words)))
        if name in ("watch", "entr", "parallel", "flock"):
            inner += self._parse_script(" ".join(w.text or "$x" for w in words), command)
        if name == "coproc":
            doubts.append("a coprocess")
            # A name or a group may come first: any of the next words could be the command.
            inner += [self._make_inner(command, words[at:]) for at in (1, 2) if len(words) > at]
        return _set_inner(command, inner, spec.kind, *doubts)

    def _unwrap_command(self, command: SimpleCommand) -> SimpleCommand:
        """`command -v x` only looks x up; `command x` runs it."""
        if len(command.argv) > 1 and command.argv[1].text in ("-v", "-V"):
            return command
        return self._unwrap_by_spec(command, "command", WRAPPERS["command"])

    # ---------------------------------------------------------------- shells and scripts

    def _unwrap_shell(self, command: SimpleCommand) -> SimpleCommand:
        """`bash -c SCRIPT`, `bash FILE`, `bash <<EOF`."""
        words, inline, stdin, at = command.argv[1:], False, False, 0
        while at < len(words):
            text = words[at].text
            if text is None:
                return _set_inner(command, (), "", "the script is known only when the command runs")
            if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
                if not text.endswith("o"):
                    return _set_inner(command, (), "", f"a shell started with {text}")
                at += 2
                continue
            if text[:1] not in ("-", "+") or text in ("-", "--"):
                at += text in ("-", "--")
                break
            if text in ("--version", "--help"):
                return command
            if text.startswith("--"):
                if text not in ("--norc", "--noprofile", "--posix", "--login"):
                    return _set_inner(command, (), "", f"a shell started with {text}")
            elif "c" in text[1:]:
                inline = True
            elif "s" in text[1:]:
                stdin = True
            at += 1
        rest = words[at:]
        if inline:
            if not rest or rest[0].text is None or rest[0].is_glob:
                return _set_inner(command, (), "", "the script is known only when the command runs")
            return self._unwrap_script(command, rest[0].text)
        if rest and not stdin and not _DESCRIPTOR_PATH.match(rest[0].text or ""):
            return command  # a script file: a rule has to name it
        data = [r for r in command.redirects if r.effect == "data"]
        if data and data[-1].data is not None:
            return self._unwrap_script(command, data[-1].data)
        return _set_inner(command, (), "", "a shell that reads its script from a pipe or a file")

    def _unwrap_script(self, command: SimpleCommand, script: str) -> SimpleCommand:
        plain_shell = command.program not in ("bash", "rbash")
        differs = plain_shell and _BASHISM.search(script)
        doubts = ("a script that bash and other shells read differently",) if differs else ()
        return _set_inner(command, self._parse_script(script, command), "transparent", *doubts)

    def _unwrap_eval(self, command: SimpleCommand) -> SimpleCommand:
        if any(w.text is None or w.is_glob or w.has_tilde for w in command.argv[1:]):
            return _set_inner(
                command, (), "", "the text that eval runs is known only when the command runs"
            )
        text = " ".join(w.text or "" for w in command.argv[1:])
        return _set_inner(command, self._parse_script(text, command), "transparent")

    def _unwrap_trap(self, command: SimpleCommand) -> SimpleCommand:
        if len(command.argv) < 2 or command.argv[1].text is None:
            return command
        inner = self._parse_script(command.argv[1].text, command)
        return _set_inner(command, inner, "opaque", "a trap runs its command later")

    def _unwrap_alias(self, command: SimpleCommand) -> SimpleCommand:
        inner: list[SimpleCommand] = []
        for word in command.argv[1:]:
            if word.text and "=" in word.text:
                inner += self._parse_script(word.text.partition("=")[2], command)
        return _set_inner(command, inner, "opaque", "an alias changes what later commands mean")

    def _unwrap_su(self, command: SimpleCommand) -> SimpleCommand:
        texts = [w.text for w in command.argv]
        inner: list[SimpleCommand] = []
        for at, text in enumerate(texts[:-1]):
            if text and (text == "--command" or re.fullmatch(r"-[a-z]*c", text)):
                inner += self._parse_script(texts[at + 1] or "$x", command)
        return _set_inner(command, inner, "opaque" if inner else "", "runs as another user")

    def _unwrap_runuser(self, command: SimpleCommand) -> SimpleCommand:
        if any((w.text or "").startswith(("-u", "--user")) for w in command.argv):
            return self._unwrap_by_spec(command, "runuser", WRAPPERS["runuser"])
        return self._unwrap_su(command)

    # ---------------------------------------------------------------- env, find, fd, git

    def _unwrap_env(self, command: SimpleCommand) -> SimpleCommand:
        words, assigned, doubts = list(command.argv[1:]), list[Assignment](), list[str]()
        while words:
            text = words[0].text
            if text is None:
                doubts.append("an option is known only when the command runs")
            elif not text.startswith("-"):
                break
            words.pop(0)
            if text in ("-", "--"):
                if text == "--" and words and words[0].text == "-":
                    words.pop(0)
                break  # only assignments and the command can follow
            if text in ("-u", "--unset") and words:
                words.pop(0)
            elif text and text.startswith(("-S", "--split-string")):
                script = text.partition("=")[2] if text.startswith("--") else text[2:]
                if not script and words:
                    script = words.pop(0).text or "$x"
                script += "".join(f" {w.source}" for w in words)
                inner = self._parse_script(script, command)
                doubt = "env -S splits words differently from the shell"
                return _set_inner(command, inner, "transparent", doubt)
            elif text and not _is_safe_env_option(text):
                doubts.append(f"env {text}: the effect of this option is not known")
        while words and "=" in (words[0].text or ""):
            name, _, value = (words.pop(0).text or "").partition("=")
            assigned.append(Assignment(name, Word(value, value)))
        if words and words[0].text is None:
            doubts.append("the inner command is known only when the command runs")
        if not words:
            return _set_inner(command, (), "", *doubts)
        inner = [self._make_inner(command, words, *assigned)]
        return _set_inner(command, inner, "transparent", *doubts)

    def _unwrap_find(self, command: SimpleCommand) -> SimpleCommand:
        inner: list[SimpleCommand] = []
        words = command.argv[1:]
        for at, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                ends = (i for i in range(at + 1, len(words)) if words[i].text in (";", "+"))
                run = words[at + 1 : next(ends, len(words))]
                if run:
                    argv = [UNKNOWN_ARGUMENTS if "{}" in (w.text or "") else w for w in run]
                    inner.append(self._make_inner(command, argv))
        return _set_inner(command, inner, "opaque") if inner else command

    def _unwrap_fd(self, command: SimpleCommand) -> SimpleCommand:
        for at, word in enumerate(command.argv):
            if word.text in ("-x", "-X", "--exec", "--exec-batch") and len(command.argv) > at + 1:
                run = [*command.argv[at + 1 :], UNKNOWN_ARGUMENTS]
                return _set_inner(command, [self._make_inner(command, run)], "opaque")
        return command

    def _unwrap_git(self, command: SimpleCommand) -> SimpleCommand:
        """Scripts in the arguments of git; its other effects are found by `analysis/git.py`."""
        texts = [w.text for w in command.argv]
        inner = _list_diff_reads(command)
        for at, text in enumerate(texts[:-1]):
            following = texts[at + 1 :]
            if text == "foreach" and "submodule" in texts[:at]:
                script = [t for t in following if t and not t.startswith("--")]
                inner += self._parse_script(" ".join(script), command)
            elif text == "run" and "bisect" in texts[:at]:
                inner.append(self._make_inner(command, command.argv[at + 1 :]))
            elif text in ("-x", "--exec") and following[0] and "rebase" in texts[:at]:
                inner += self._parse_script(following[0], command)
            elif text == "-c" and following[0] and "=!" in following[0]:
                inner += self._parse_script(following[0].partition("=!")[2], command)
        return _set_inner(command, inner, "opaque") if inner else command


_UNWRAPPERS: dict[str, Callable[[Unwrapper, SimpleCommand], SimpleCommand]] = {
    "eval": Unwrapper._unwrap_eval,
    "env": Unwrapper._unwrap_env,
    "command": Unwrapper._unwrap_command,
    **dict.fromkeys(("find", "gfind"), Unwrapper._unwrap_find),
    **dict.fromkeys(("fd", "fdfind"), Unwrapper._unwrap_fd),
    "git": Unwrapper._unwrap_git,
    "trap": Unwrapper._unwrap_trap,
    "alias": Unwrapper._unwrap_alias,
    **dict.fromkeys(("su", "capsh", "script"), Unwrapper._unwrap_su),
    "runuser": Unwrapper._unwrap_runuser,
}
# The programs that may run other commands, apart from git; one in another folder may be a shell.
WRAPPING_PROGRAMS = (_UNWRAPPERS.keys() - {"git"}) | SHELLS | _OTHER_SHELLS | WRAPPERS.keys()
# git runs, or compares, only with one of these.
GIT_WRAPPER_WORDS = word_set("foreach run -x --exec -c diff")


def _set_inner(
    command: SimpleCommand, inner: Sequence[SimpleCommand], wrapper_kind: WrapperKind, *doubts: str
) -> SimpleCommand:
    return replace(
        command, inner=tuple(inner), wrapper_kind=wrapper_kind, doubts=(*command.doubts, *doubts)
    )


def _prepend_cd_paths(inner: SimpleCommand, outer: SimpleCommand) -> SimpleCommand:
    """A script starts in the folder of the shell that runs it."""
    if outer.cd_paths is None or inner.cd_paths is None:
        return replace(inner, cd_paths=None)
    cd_paths = tuple(
        b if b and b[0].startswith(("/", "~")) else (*a, *b)
        for a in outer.cd_paths
        for b in inner.cd_paths
    )
    return replace(inner, cd_paths=cd_paths)


def _skip_wrapper_options(
    command: SimpleCommand, name: str, spec: WrapperSpec
) -> tuple[list[Word], list[str]]:
    """The words from the inner command on, and doubts about the options before it."""
    words, doubts = list(command.argv[1:]), list[str]()
    if command.argv[0].source == "time" and not command.assignments:
        words, doubts = parse_time_options(words, bool(command.redirects))
    while words:
        text = words[0].text
        if text is None:
            doubts.append("an option is known only when the command runs")
            words.pop(0)
        elif text == "--":
            words.pop(0)
            break
        elif text.startswith("-") and len(text) > 1:
            words.pop(0)
            if text in spec.value_options and words:
                words.pop(0)
            elif not is_known_option(text, spec, name):
                doubts.append(f"{name} {text}: the effect of this option is not known")
        else:
            break
    return words[spec.operand_count :], doubts


def _is_safe_env_option(text: str) -> bool:
    if text in ("-i", "--ignore-environment", "-v", "--debug"):
        return True
    return text.startswith("--unset=") or (text.startswith("-u") and len(text) > 2)


def _list_diff_reads(command: SimpleCommand) -> list[SimpleCommand]:
    """`git diff` with a path outside of the repository compares any two files: it reads them."""
    line = parse_git_command(command.argv[1:])
    if line.subcommand is None or line.subcommand.text != "diff":
        return []
    cd_paths = command.cd_paths
    if cd_paths is not None:
        steps = tuple(w.text or "" for w in line.folders)
        cd_paths = tuple((*path, *steps) for path in cd_paths)
    return [
        SimpleCommand((), (), (Redirect("<", "read", word),), word.source, cd_paths)
        for word in line.arguments
        if may_leave_folder(word)
    ]
