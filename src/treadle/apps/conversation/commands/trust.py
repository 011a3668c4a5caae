"""The questions about trust: do the files of a folder take effect, may its programs run?

Asked at the first start in a folder, and by `/trust`. A no holds for this session or for good.
Hooks and servers of the folder need a separate approval whenever they are new or changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import CommandAnswer, Question, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_permissions import MODE_DESCRIPTIONS
from treadle.lib.text.sanitize import escape_invisible

DECLINED_NOTE = "this folder is not trusted: its own files are ignored; /trust changes that"
_NO_SANDBOX = (
    " Where there is no sandbox, it asks before commands that do more than read or edit files."
)
MAX_LISTED_RULES = 8
MAX_RULE_CHARS = 120
_YES = ChoiceOption("yes", "Trust this folder", key="y")
_START_OPTIONS = (
    _YES,
    ChoiceOption("no", "Not now: work without its settings files", key="n"),
    ChoiceOption("never", "Do not trust it, and do not ask again", key="d"),
    ChoiceOption("quit", "Quit", key="q"),
)
_OPTIONS = (_YES, ChoiceOption("never", "No, and do not ask at the start", key="n"))
_PROGRAM_OPTIONS = (
    ChoiceOption("yes", "Allow them", key="y"),
    ChoiceOption("no", "Not now", key="n"),
)


def ask_at_start(session: HostedSession) -> CommandAnswer:
    """The question, unless the user has decided before."""
    if session.trust.is_given or session.trust.is_declined:
        return CommandAnswer()
    return CommandAnswer(question=_make_trust_question(session, _START_OPTIONS))


async def run_trust(session: HostedSession, arguments: str) -> CommandAnswer:
    """`/trust`: asks for trust, or about unapproved programs."""
    if not session.trust.is_given:
        return CommandAnswer(question=_make_trust_question(session, _OPTIONS))
    if session.trust.list_unapproved_programs():
        return CommandAnswer(question=_make_program_question(session))
    return CommandAnswer("this folder is trusted")


def _make_trust_question(session: HostedSession, options: Sequence[ChoiceOption]) -> Question:
    async def decide(answer: str) -> CommandAnswer:
        if answer == "quit":
            return CommandAnswer(screen=ScreenChange("quit"))
        if answer == "never":
            session.trust.decline()
        if answer != "yes":
            return CommandAnswer("it is not trusted") if session.is_open else CommandAnswer()
        session.trust.give()
        if session.trust.list_unapproved_programs():
            return CommandAnswer(question=_make_program_question(session, is_new=True))
        return await _reopen(session, "this folder is trusted: its own files take effect now")

    files, mode = session.trust.list_files(), session.permissions.mode
    files_line = f"\ncontains {escape_invisible(', '.join(files))}" if files else ""
    message = (
        f"{escape_invisible(str(session.folder))}{files_line}\n\n"
        "If you trust it, its own files take effect: AGENTS.md and CLAUDE.md, settings, commands, "
        "agents, skills and allow rules. Trust it only if you know who wrote them.\n\n"
        f"{describe_allow_rules(session.trust.list_rules())}"
        "In either case the permission mode decides what needs your approval. It is now "
        f"{mode}, which {MODE_DESCRIPTIONS.get(mode, '')}.{_NO_SANDBOX if mode == 'auto' else ''}"
    )
    title = "Do you trust the files in this folder?"
    return Question(title, options, decide, message=message, by_user=False)


def describe_allow_rules(rules: Sequence[str]) -> str:
    """A paragraph with the rules that are accepted with trust, the first of many; or ""."""
    if not rules:
        return ""
    lines = [f"  {escape_invisible(rule)[:MAX_RULE_CHARS]}" for rule in rules[:MAX_LISTED_RULES]]
    if (more := len(rules) - MAX_LISTED_RULES) > 0:
        lines.append(f"  and {more} more, which are in the settings files of the folder")
    return "\n".join(["These calls then need no approval of yours:", *lines]) + "\n\n"


def _make_program_question(session: HostedSession, *, is_new: bool = False) -> Question:
    """`is_new`: the folder has just been trusted, and the session is opened again in any case."""
    programs = session.trust.list_unapproved_programs()

    async def decide(answer: str) -> CommandAnswer:
        if answer == "yes":
            session.trust.approve_programs()
        if is_new:
            return await _reopen(session, "this folder is trusted: its own files take effect now")
        if answer == "yes":
            return await _reopen(session, "the programs are approved and run now")
        return CommandAnswer("\n".join(["this folder is trusted", "not approved:", *programs]))

    return Question(
        "Allow these programs of the folder to run?",
        _PROGRAM_OPTIONS,
        decide,
        message="\n".join(map(escape_invisible, programs)),
        by_user=False,
        closed="no",
    )


async def _reopen(session: HostedSession, note: str) -> CommandAnswer:
    if not session.is_open:
        return CommandAnswer()  # at the start
    await session.reconfigure(has_notes=True)
    return CommandAnswer(note)
