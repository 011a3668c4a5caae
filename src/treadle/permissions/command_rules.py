"""The rules about commands: which one forbids a simple command, and which one allows it.

Matches words only; `command_evaluator.py` uses it and looks at files and effects.
"""

from collections.abc import Iterable, Sequence

from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.permissions.ruleset.rules import CommandPattern, Rule, RuleSet
from treadle.permissions.ruleset.spellings import Spellings, WordTexts
from treadle.permissions.ruling import PolicyFinding

_MAX_SUFFIXES = 200


class CommandRules:
    """The command rules of one rule set."""

    def __init__(self, rules: RuleSet) -> None:
        self._allowing = [(r, p) for r in rules.allow if (p := r.command_pattern) is not None]
        forbidding = rules.list_forbidding()
        self._forbidding = [
            (o, r, p) for o, r in forbidding if (p := r.command_pattern) is not None
        ]
        self.forbidden_programs = frozenset(p.words[0] for _, _, p in self._forbidding if p.words)

    def find_forbidding(self, command: SimpleCommand, spellings: Spellings) -> PolicyFinding | None:
        """The finding of the first deny rule that matches the command, else of an ask rule."""
        if command.is_unread:
            # At any depth, the innermost command is at the end of the words.
            loose = (*spellings.loose, *_list_suffixes(command.argv))
            spellings = Spellings(spellings.strict, loose)
        for outcome, rule, pattern in self._forbidding:
            if pattern.forbids(spellings):
                return PolicyFinding.from_rule(command.source, outcome, rule)
        return None

    def find_allowing(
        self, command: SimpleCommand, spellings: Spellings
    ) -> tuple[Rule, CommandPattern] | None:
        """The most specific allow rule that covers the words and assignments of the command."""
        if not command.argv:
            return None
        assigned = {f"{a.name}={a.value.text}" for a in command.assignments}
        matching = [
            (rule, pattern)
            for rule, pattern in self._allowing
            if (pattern.is_blanket or pattern.allows(spellings))
            and assigned.issuperset(pattern.assignments)
        ]
        specificity = [(p.is_exact_match(command.argv), len(p.words)) for _, p in matching]
        return matching[specificity.index(max(specificity))] if matching else None

    def is_exact_match(self, words: Sequence[Word]) -> bool:
        """Whether an allow rule contains the whole command."""
        return any(pattern.is_exact_match(words) for _, pattern in self._allowing)

    def has_rule_without_more_words(self, words: Sequence[Word]) -> bool:
        """Whether an allow rule is this command and no other: `git status`, not `git status:*`."""
        return any(p.is_exact_match(words) and not p.is_prefix for _, p in self._allowing)


def covers_inner(
    pattern: CommandPattern | None, outer: SimpleCommand, spellings: Spellings, inner: SimpleCommand
) -> bool:
    """Whether the rule for a wrapper names the program inside it as well."""
    if pattern is None or pattern.regex or not inner.argv:
        return False
    at = next((at for at, word in enumerate(outer.argv) if word is inner.argv[0]), None)
    return at is not None and len(pattern.words) > at and pattern.allows(spellings)


def _list_suffixes(argv: Sequence[Word]) -> Iterable[WordTexts]:
    texts = tuple((word.text or "").rpartition("/")[2] for word in argv[-_MAX_SUFFIXES:])
    return (texts[at:] for at in range(len(texts)))
