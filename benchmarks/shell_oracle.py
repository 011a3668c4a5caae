"""Does the reader of command lines see all that bash does? Generated lines, run and compared.

Each line is read by `treadle.policy.shell` and run by bash under strace, in a folder of its own
where every program is a stand-in that does nothing. A program that was executed, or a file that was
opened for writing, though the reader listed no such thing and had no doubt, is a failure.

    python benchmarks/shell_oracle.py 100000 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from treadle.policy.shell import Part, Word, read_command

STAND_INS = ("p", "q", "rr", "gg", "nnn")
REAL = ("bash", "env", "timeout", "nice", "nohup", "xargs", "sh")
_CALLS = "execve,execveat,open,openat,openat2,creat,mkdir,unlink,unlinkat,rename,renameat2"


class Failure(Exception):
    """Bash did what the reader did not list."""


# ---------------------------------------------------------------- lines

WORDS = (
    "a", "b", "-x", "--y=z", "'c d'", '"e f"', "g\\ h", "$'i\\tj'", "{k,l}", "{k,}", "$x", '"$x"',
    "*", "a#b", "''", "~", "=", "a=b", "!", "[", "]", "1", "{}", "$", "'$(q)'", "%", '"\\$(q)"',
    "\\;", "é", "x{1..3}y", "${x}", '"${x:-y}"', "$((1+2))", "$?", "[a]*", "a{b", "'it'\"'\"'s'",
    "{a,{b,c}d}", "\\\\", "a\\\nb", "-", "--",
)  # fmt: skip
FILES = ("f1", "f2", "'f 3'", "./f4", "$x", "f{5,6}", "f\\7", '"f8"', "f9.txt")
LAST = ("2>&1", "</dev/null", ">/dev/null", "<<< a", "<<< $(p)", "#c", "3>&1")
PREFIXES = (
    "timeout 5", "env", "nice -n 5", "nohup", "env A=1", "command", "exec", "time",
    "builtin command", "timeout -k 1 5", "time -p", "env -u A",
)  # fmt: skip
BENT = (  # put in at any place, to find where bash and the reader part
    "'", '"', "\\", " ", "\n", ";", "&", "|", ">", "<", "(", ")", "{", "}", "$", "`", "#", "!",
    "=", ",", "\t", "\\\n", "\u00a0", "\u2028", "\r", "\x0b", "\f", "$'", "&&", "<<", ">>", "((",
    "[[", "]]", "~", "*", "é", "-", "--", " # ", "$(", "${", "2>", "&>", ";;", "then", "do", "in ",
)  # fmt: skip


class Lines:
    """Makes command lines: mostly well formed, some of them bent."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        text = self.list(3)
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 4))):
            text = self.bend(text)
        return text

    def bend(self, text: str) -> str:
        pick = self.random
        at = pick.randrange(len(text) + 1)
        what = pick.choice(BENT)
        match pick.randrange(3):
            case 0:
                return text[:at] + what + text[at:]
            case 1:
                return text[:at] + text[at + 1 :]
        end = min(len(text), at + pick.randrange(1, 6))
        return text[:end] + text[at:end] + text[end:]

    def list(self, depth: int) -> str:
        joint = self.random.choice(["; ", " && ", " || ", " | ", "\n", " & ", " |& ", ";", "&&"])
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        return joint.join(self.command(depth) for _ in range(count))

    def command(self, depth: int) -> str:
        pick = self.random
        if depth and pick.random() < 0.25:
            inner = self.list(depth - 1)
            return pick.choice(
                [
                    f"( {inner} )",
                    f"{{ {inner}; }}",
                    f"if {inner}; then {self.list(depth - 1)}; fi",
                    f"for x in a b; do {inner}; done",
                    f"while false; do {inner}; done",
                    f"case a in a) {inner};; *) {self.simple(0)};; esac",
                    f"! {self.simple(depth - 1)}",
                    f"({inner}) > {self.file()}",
                    f"bash -c {self.quote(inner)}",
                    f"eval {self.quote(inner)}",
                    f"{self.simple(0)} <<'E'\n{inner}\nE",
                    f"{self.simple(0)} <<E\n{self.word(depth - 1)}\nE",
                    f"bash <<'E'\n{inner}\nE",
                    f"until p; do {inner}; done",
                    f"time {self.simple(depth - 1)}",
                    f"[ -n a ] && {inner}",
                    f"[[ a == b ]] || {inner}",
                ]
            )
        return self.simple(depth)

    def simple(self, depth: int) -> str:
        pick = self.random
        words = [self.name()]
        words += [self.word(depth) for _ in range(pick.choice((0, 1, 1, 2, 3)))]
        if pick.random() < 0.2:
            words.insert(0, pick.choice(PREFIXES))
        if pick.random() < 0.15:
            words.insert(0, pick.choice(("A=1", "LC_ALL=C", "x=$(p)", "A='b c'", "PATH=.", "A=")))
        if pick.random() < 0.25:
            operator = pick.choice((">", ">>", "2>", "&>", ">|", "<>", ">&", "2>>", "&>>", "1>"))
            redirect = operator + pick.choice(("", " ")) + pick.choice(FILES)
            words.insert(pick.randrange(len(words) + 1), redirect)
        if pick.random() < 0.08:
            words.append(pick.choice(LAST))
        return pick.choice((" ", " ", "  ", " \\\n", "\t")).join(words)

    def name(self) -> str:
        name = self.random.choice(STAND_INS)
        forms = [name] * 8 + [f"'{name}'", f'"{name}"', f"\\{name}", f"{name[:1]}''{name[1:]}"]
        forms += [f"$'{name}'", f"{{{name},a}}", f"{name[:1]}\\\n{name[1:]}"]
        return self.random.choice(forms)

    def word(self, depth: int) -> str:
        pick = self.random
        if depth and pick.random() < 0.15:
            inner = self.list(depth - 1)
            forms = (f"$({inner})", f"`{self.name()} a`", f'"$({inner})"', f"<({inner})")
            return pick.choice(forms)
        return pick.choice(WORDS)

    def file(self) -> str:
        return self.random.choice(FILES)

    def quote(self, text: str) -> str:
        return "'" + text.replace("'", "'\\''") + "'"


# ---------------------------------------------------------------- running


class Ground:
    """A folder where lines are run: stand-ins on the path, strace around the shell."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="treadle-oracle-"))
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        (self.folder / "tmp").mkdir()
        true = shutil.which("true") or "/bin/true"
        for name in STAND_INS:
            (self.programs / name).symlink_to(true)
        for name in REAL:
            found = shutil.which(name)
            if found:
                (self.programs / name).symlink_to(found)
        self.bash = shutil.which("bash") or "/bin/bash"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, line: str) -> tuple[list[list[str]], set[str]]:
        """The argument lists of the programs that ran, and the files opened for writing."""
        work, log = self.folder / "work", self.folder / "log"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        environment = {
            "PATH": str(self.programs),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": "/nowhere",
        }
        command = [
            "strace", "-f", "-xx", "-s", "65536", "-e", f"trace={_CALLS}", "-o", str(log),
            self.bash, "-c", line,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=work, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            executable=shutil.which("strace"), start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        return self._read(log, work)

    def _read(self, log: Path, work: Path) -> tuple[list[list[str]], set[str]]:
        ran: list[list[str]] = []
        written: set[str] = set()
        for entry in log.read_text(errors="replace").splitlines():
            if " = -1 " in entry:
                continue
            strings = [_decode(s) for s in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', entry)]
            if "execve(" in entry:
                ran.append(strings[1:])
            elif re.search(r"O_(?:WRONLY|RDWR|CREAT)|creat\(", entry) and strings:
                path = os.path.normpath(work / strings[0])
                if not path.startswith(("/dev/", "/proc/", str(self.folder / "tmp"))):
                    written.add(path)
        return ran[1:], written


def _decode(text: str) -> str:
    return bytes.fromhex(text.replace("\\x", "")).decode("utf-8", "replace")


# ---------------------------------------------------------------- comparing


def check(line: str, ground: Ground) -> bool:
    """Whether the line was understood; raises Failure when bash did more than was listed."""
    facts = read_command(line)
    parts = list(_everything(facts.parts))
    unclear = facts.doubts or any(p.doubts or (p.argv and p.argv[0].text is None) for p in parts)
    if unclear:
        return False
    targets = [r.target for p in parts for r in p.redirects if r.effect in ("write", "both")]
    if any(t is None or t.text is None or t.glob for t in targets):
        return False
    ran, written = ground.run(line)
    for argv in ran:
        if not any(_same(argv, p.argv) for p in parts):
            raise Failure(f"ran {argv}")
    work = ground.folder / "work"
    listed = {_target(t, work) for t in targets if t is not None}
    if written - listed:
        raise Failure(f"wrote {written - listed}")
    return True


def _target(word: Word, work: Path) -> str:
    text = word.text or ""
    return os.path.normpath("/nowhere" + text[1:] if word.tilde else work / text)


def _everything(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from _everything(part.inner)


def _same(argv: Sequence[str], words: Sequence[Word]) -> bool:
    """Whether a listed command could have become this argument list."""
    if not words:
        return not argv
    word = words[0]
    if word.text is None or word.glob:  # any number of words
        return any(_same(argv[n:], words[1:]) for n in range(len(argv) + 1))
    if not argv:
        return False
    text = word.text
    if word.tilde and text in ("~", "~/"):
        return argv[0].startswith("/") and _same(argv[1:], words[1:])
    same = argv[0] == text or argv[0].rpartition("/")[2] == text
    return same and _same(argv[1:], words[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    lines, ground = Lines(options.seed), Ground()
    understood = failures = 0
    try:
        for _ in range(options.count):
            line = lines.line()
            try:
                understood += check(line, ground)
            except Failure as failure:
                failures += 1
                print(f"{failure}\n  in {line!r}", flush=True)
    finally:
        ground.close()
    print(
        f"seed {options.seed}: {options.count} lines, {understood} understood, {failures} failures"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
