"""Command lines for the oracle: mostly well formed, some of them bent.

Makes text and nothing else; what bash does with it is seen by `shell_sandbox.py` and compared by
`shell_oracle.py`. The same seed gives the same lines.
"""

from __future__ import annotations

import random

STAND_INS = ("p", "q", "rr", "gg", "nnn")

WORDS = (
    "a", "b", "-x", "--y=z", "'c d'", '"e f"', "g\\ h", "$'i\\tj'", "{k,l}", "{k,}", "$x", '"$x"',
    "*", "a#b", "''", "~", "=", "a=b", "!", "[", "]", "1", "{}", "$", "'$(q)'", "%", '"\\$(q)"',
    "\\;", "é", "x{1..3}y", "${x}", '"${x:-y}"', "$((1+2))", "$?", "[a]*", "a{b", "'it'\"'\"'s'",
    "{a,{b,c}d}", "\\\\", "a\\\nb", "-", "--", '"a\'b"', "'a\"b'", "$'\\''", "$'\\x41'", '$"l"',
    '"a\\\nb"', "'a\\\nb'", "~/x", "~q", "a~", "${x#p}", "${x%%'q'}", '"${x/p/q}"', "$((x))",
    "${#x}", "$#", "$@", '"$@"', "$*", "a;b\\", "{q},#a}", "{k},}", "{a..c}", "{,p}", "\\\n", "^a",
    "a\\", '"`p`"', "@(a|b)", "?(p)", "a,b", "{p", "p}", "\\#c", "'#'", "if", "do", "}", "in", "]]",
    "%1", "a:~", "=p", "[[", "((", '"\n"', "'\n'", "$'a\\nb'", "\\&", '"&"', "#", "*.x", "$$",
)  # fmt: skip
FILES = (
    "f1", "f2", "'f 3'", "./f4", "$x", "f{5,6}", "f\\7", '"f8"', "f9.txt", "$'f\\t1'", "f1*",
    "~/f2",    '"f"$(p)', "f\\\n3", "../f4", "/nowhere/f5", "{f}", "-f", "1", "f=1", "f''", "é",
)  # fmt: skip
OPERATORS = (
    ">", ">>", "2>", "&>", ">|", "<>", ">&", "2>>", "&>>", "1>", "<", "0<", "3>", "{v}>", ">\\\n",
    "2\\\n>", "12>", "3<>", "<&", "2>|",
)  # fmt: skip
LAST = (
    "2>&1", "</dev/null", ">/dev/null", "<<< a", "<<< $(p)", "#c", "3>&1", "2>&-", "<&0", ">&2",
    "<<< 'a b'", '<<< "$(q)"', "<<<a", "# c \\\nq", "2>&1 >f1", "<&-", ">&1-", "1>&2 2>f2", "; #",
)  # fmt: skip
PREFIXES = (
    "timeout 5", "env", "nice -n 5", "nohup", "env A=1", "command", "exec", "time",
    "builtin command", "timeout -k 1 5", "time -p", "env -u A", "nice", "nice -5", "env -i",
    "env - ", "command -p", "timeout --signal=KILL 5", "env -- ", "exec -a z", "command --",
    "timeout -sKILL 5", "xargs", "xargs -n 1", "env A= B=2", "time --", "! time", "env --unset=A",
)  # fmt: skip
ASSIGNMENTS = (
    "A=1", "LC_ALL=C", "x=$(p)", "A='b c'", "PATH=.", "A=", "A={p,q}", "A=~", "A+=b", "a[0]=p",
    "A=(p q)", "A=`q`", "A=<(p)", "A=$'b'", "A=b\\\nc", 'A="b" B=c', "A=b#c", "a=b=c", "A=*",
)  # fmt: skip
BENT = (  # put in at any place, to find where bash and the reader part
    "'", '"', "\\", " ", "\n", ";", "&", "|", ">", "<", "(", ")", "{", "}", "$", "`", "#", "!",
    "=", ",", "\t", "\\\n", "\u00a0", "\u2028", "\r", "\x0b", "\f", "$'", "&&", "<<", ">>", "((",
    "[[", "]]", "~", "*", "é", "-", "--", " # ", "$(", "${", "2>", "&>", ";;", "then", "do", "in ",
    "))", "}}", "<(", ">(", "<<<", "<<-", ";&", "|&", "||", "\\\n\n", "\n\\\n", "@(", "$((", "+=",
    "..", "fi", "esac", "done", "\n#", "\\\\\n", "'\\\n", '"\\\n', "=(", "()", "[", "]", ":",
)  # fmt: skip
JOINTS = (
    "; ",
    " && ",
    " || ",
    " | ",
    "\n",
    " & ",
    " |& ",
    ";",
    "&&",
    "|",
    "&",
    "\n\n",
    " ;\n",
    "||\n",
)


class Lines:
    """Makes command lines, one after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def take(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def line(self) -> str:
        text = self.list(3)
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2, 4))):
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
        joint = self.random.choice(JOINTS)
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        return joint.join(self.command(depth) for _ in range(count))

    def command(self, depth: int) -> str:
        if not depth or self.random.random() > 0.28:
            return self.simple(depth)
        kinds = (self.compound, self.compound, self.compound, self.document, self.script, self.rare)
        return self.random.choice(kinds)(depth)

    def compound(self, depth: int) -> str:
        inner, other = self.list(depth - 1), self.list(depth - 1)
        return self.random.choice(
            (
                f"( {inner} )",
                f"({inner})",
                f"{{ {inner}; }}",
                f"{{ {inner}\n}} > {self.file()}",
                f"if {inner}; then {other}; fi",
                f"if {inner}\nthen {self.simple(0)}; elif q; then {other}\nelse p; fi",
                f"for x in a b; do {inner}; done",
                f"for x in {self.word(depth - 1)} {self.word(0)}\ndo {inner}\ndone",
                f"while false; do {inner}; done",
                f"while {self.simple(0)} && nnn; do {inner}; done > {self.file()}",
                f"case a in a) {inner};; *) {self.simple(0)};; esac",
                f"case {self.word(0)} in (a|'b c') {inner} ;; b*) {other}\n;; esac",
                f"! {self.simple(depth - 1)}",
                f"! {self.simple(0)} | {self.simple(depth - 1)}",
                f"({inner}) > {self.file()}",
                f"until p; do {inner}; done",
                f"time {self.simple(depth - 1)}",
                f"[ -n a ] && {inner}",
                f"[[ a == b ]] || {inner}",
                f"[[ -f f1 && ! a < b ]] || {inner}",
                f"[[ a =~ (b|c)\\ d ]] || {inner}",
                f"[ a = {self.word(depth - 1)} ] || {inner}",
                f"[[ {self.word(depth - 1)} == {self.word(0)} ]] && {inner}",
            )
        )

    def script(self, depth: int) -> str:
        inner = self.quote(self.list(depth - 1))
        return self.random.choice(
            (
                f"bash -c {inner}",
                f"bash -ec {inner} z {self.word(0)}",
                f"eval {inner}",
                f"eval {self.name()} {self.word(0)} {self.quote(self.word(0))}",
                f"env A=1 bash -c {inner}",
                f"eval {self.name()} '\n' {inner}",
                f"bash <<< {inner}",
            )
        )

    def document(self, depth: int) -> str:
        inner, body = self.list(depth - 1), self.word(depth - 1)
        body = self.random.choice((body, inner, f"a {body} \\$x \\\\", f"'{body}", f'"{body}" #'))
        head = self.simple(0)
        return self.random.choice(
            (
                f"{head} <<'E'\n{inner}\nE",
                f"{head} <<E\n{body}\nE",
                f"{head} <<-E\n\t{body}\n\tE",
                f'{head} <<"E"\n{body}\nE\n{self.simple(0)}',
                f"{head} <<\\E\n{body}\nE",
                f"{head} <<E | {self.simple(depth - 1)}\n{body}\nE",
                f"{head} <<E && {self.simple(0)} > {self.file()}\n{body}\nE\n{self.simple(0)}",
                f"{head} <<E {self.word(0)} > {self.file()}\n{body}\nE",
                f"bash <<'E'\n{inner}\nE",
                f"cat <<E \\\n {self.word(0)}\n{body}\nE",
                f"{head} \"$(q <<'E'\n{body}\nE\n)\"",
                f"{{ {head} <<E\n{body}\nE\n}}",
            )
        )

    def rare(self, depth: int) -> str:
        inner = self.list(depth - 1)
        return self.random.choice(
            (
                f"f() {{ {inner}; }}; f",
                f"function f {{ {inner}; }}\nf a",
                f"f() ({inner}); {self.simple(0)}",
                f"p() {{ {inner}; }}; p",
                f"coproc {self.simple(0)}",
                f"coproc C {{ {inner}; }}",
                f"(( x = 1 )) && {inner}",
                f"for ((i=0;i<1;i++)); do {inner}; done",
                f"select x in a; do {inner}; break; done < /dev/null",
                f"case a in a) {inner};& b) {self.simple(0)};;& *) q;; esac",
                f"a=({self.word(depth - 1)} p); {self.simple(0)}",
                f"a=(p q); ${{a[@]}}; {inner}",
                f"shopt -s extglob\n{self.name()} @(a|b) {self.word(0)}",
                f"let x=1; {inner}",
                f"{self.name()} $(( $({inner}) + 1 ))",
                f"{self.name()} ${{x:-$({inner})}}",
                f'{self.name()} "${{x:-`{self.name()} a`}}"',
                f"{self.name()} {self.word(0)} > >({inner})",
                f"{self.name()} < <({inner})",
                f"exec {self.random.choice(OPERATORS)} {self.file()}; {self.simple(0)}",
                f"declare A={self.word(depth - 1)}; {self.simple(0)}",
                f"x=p; $x {self.word(0)}; {inner}",
                f"trap {self.quote(inner)} EXIT",
                f"alias p=q\np {self.word(0)}",
                f"{self.name()} $[1+2] {self.word(0)}",
                f"set -- {self.word(0)}; {inner}",
            )
        )

    def simple(self, depth: int) -> str:
        pick = self.random
        words = [self.name()]
        words += [self.word(depth) for _ in range(pick.choice((0, 1, 1, 2, 3)))]
        if pick.random() < 0.2:
            words.insert(0, pick.choice(PREFIXES))
        if pick.random() < 0.12:
            words.insert(0, pick.choice(ASSIGNMENTS))
        while pick.random() < 0.22:
            redirect = pick.choice(OPERATORS) + pick.choice(("", " ")) + self.file()
            words.insert(pick.randrange(len(words) + 1), redirect)
        if pick.random() < 0.08:
            words.append(pick.choice(LAST))
        return pick.choice((" ", " ", " ", "  ", " \\\n", "\t", "\\\n ")).join(words)

    def name(self) -> str:
        name = self.random.choice(STAND_INS)
        forms = [name] * 12 + [f"'{name}'", f'"{name}"', f"\\{name}", f"{name[:1]}''{name[1:]}"]
        forms += [f"$'{name}'", f"{{{name},a}}", f"{name[:1]}\\\n{name[1:]}", f"z{name}"]
        return self.random.choice(forms)

    def word(self, depth: int) -> str:
        pick = self.random
        if depth and pick.random() < 0.15:
            inner = self.list(depth - 1)
            forms = (
                f"$({inner})", f"`{self.name()} a`", f'"$({inner})"', f"<({inner})",
                f'"a $({inner}) `{self.name()}`"', f"$( {inner} # c\n)", f"$({inner}\n)",
                f"a$({inner})b", f">({inner})", f"`{inner}`",
            )  # fmt: skip
            return pick.choice(forms)
        if pick.random() < 0.3:
            return pick.choice(("a", "b", "-x", "c.txt"))
        if pick.random() < 0.1:
            return pick.choice(WORDS) + pick.choice(WORDS)
        return pick.choice(WORDS)

    def file(self) -> str:
        return self.random.choice(FILES[:4] if self.random.random() < 0.4 else FILES)

    def quote(self, text: str) -> str:
        return "'" + text.replace("'", "'\\''") + "'"
