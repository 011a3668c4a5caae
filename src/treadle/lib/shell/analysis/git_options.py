"""The subcommands and options of git: which only read, which run programs, which print content.

Tables only, used by `git.py`. An option that is not listed as harmless counts as one that is not.
"""

import re

from treadle.lib.text.word_set import word_set

READ_SUBCOMMANDS = word_set(
    "status log diff show rev-parse describe blame annotate ls-files ls-tree shortlog "
    "rev-list merge-base name-rev whatchanged diff-tree diff-index diff-files show-ref "
    "for-each-ref count-objects cat-file version show-branch cherry grep var check-ignore"
)
WRITE_SUBCOMMANDS = word_set(
    "add am apply archive bisect branch bundle checkout cherry-pick clean clone commit fetch "
    "gc format-patch fsck init ls-remote merge mv notes prune pull push range-diff rebase "
    "reflog remote repack reset restore revert rm sparse-checkout stash submodule switch tag "
    "update-index worktree help hash-object"
)
# Options (long ones may be abbreviated) that run a program, choose one, or open any file.
RUN_OPTIONS = word_set(
    "--upload-pack --receive-pack --exec --ext-diff --open-files-in-pager --extcmd --tool "
    "--template --config --config-env --textconv --filters --exclude-from --no-index "
    "--exclude-per-directory --ignore-revs-file --contents --separate-git-dir --reference "
    "--upload-archive --remote "
    "--server-option --sendmail-cmd --interactive --edit-description --git-dir "
    "--pathspec-from-file --stdin --file --signature-file --description-file --stdin-paths "
    "--show-signature --batch --batch-command --remerge-diff"
)
WRITE_OPTIONS = word_set("--output --output-directory --prefix --build-fake-ancestor")
SAFE_OPTIONS = word_set(  # full names that share a beginning with one above
    "--output-indicator-new --output-indicator-old --output-indicator-context --no-ext-diff "
    "--no-textconv --remotes --exclude --exclude-standard --no-edit --edit --text --to "
    "--no-template --continue --into-name --intent-to-add --batch-check --batch-all-objects"
)
SIGNATURE_FORMAT = re.compile(r"%G|%\(signature")  # these run the program that checks signatures
SHORT_RUN_OPTIONS: dict[str, str] = {
    "rebase": "xi", "grep": "Of", "clone": "uc", "difftool": "x", "add": "ip", "commit": "pt",
    "checkout": "p", "reset": "p", "stash": "p", "restore": "p", "log": "O", "diff": "O",
    "show": "O", "archive": "o", "format-patch": "o", "fetch": "u", "ls-remote": "u",
    "apply": "", "tag": "e", "blame": "S", "ls-files": "X",
}  # fmt: skip
SHORT_VALUE_OPTIONS: dict[str, str] = {
    "commit": "mCcFtSu", "log": "nSGLU", "diff": "SGUl", "show": "SGUn", "grep": "eABCmf",
    "tag": "mFu", "merge": "mFsXS", "stash": "m", "branch": "u", "clone": "bojc", "push": "o",
    "checkout": "bB", "switch": "cC", "rebase": "sXCS", "clean": "e", "blame": "LSCM",
}  # fmt: skip
SAFE_CONFIG = word_set(
    "user.name user.email core.quotepath core.abbrev core.autocrlf init.defaultbranch diff.renames "
    "diff.context diff.algorithm log.date log.decorate log.abbrevcommit log.follow log.showroot "
    "commit.gpgsign tag.gpgsign gc.auto"
)
SAFE_CONFIG_VALUES = {
    "core.pager": ("", "cat"),
    "core.fsmonitor": ("false",),
    "pull.rebase": ("true", "false", "merges"),
}
SAFE_SECTIONS = word_set("color advice status")
# Keys whose values may be shown: no URL with a password, no header, no token.
PUBLIC_KEY = re.compile(
    r"(?:user|core|init|pull|push|fetch|merge|rebase|commit|tag|diff|log|status|color|advice|gc|"
    r"rerere|format|branch|extensions|index|pack|alias|gpg|submodule|lfs)\..+|remote\..+\.url|"
    r"remote\.pushdefault"
)
PRIVATE_KEY = re.compile(r"pass|token|secret|auth|header|cookie|credential")
STRATEGIES = word_set("ort recursive resolve octopus ours subtree")
MESSAGE_SUBCOMMANDS = word_set("commit tag notes merge")  # -F reads the message from a file
READ_OPTIONS = {**dict.fromkeys(MESSAGE_SUBCOMMANDS, "--file"), "archive": "--add-file"}
STRATEGY_SUBCOMMANDS = word_set("merge rebase pull")  # -s has another meaning in the others
LISTING_OPERANDS = {  # subcommands that only read if their first operand is one of these
    "stash": {"list", "show"}, "worktree": {"list"}, "remote": {"get-url"},
    "reflog": {"show", "exists"}, "submodule": {"status", "summary"}, "notes": {"list", "show"},
    "bisect": {"log"}, "bundle": {"verify", "list-heads"},
}  # fmt: skip
ANY_PATH_SUBCOMMANDS = word_set("clone init worktree bundle hash-object")  # take any path
# Their paths are other repositories, patches, or files of a repository that begins further up.
OUTSIDE_PATH_SUBCOMMANDS = word_set(
    "fetch pull push ls-remote apply am submodule range-diff mv rm restore checkout add clean"
)
BRANCH_READ_OPTIONS = word_set(
    "-a -r -v -vv --all --remotes --verbose --list -l --show-current --merged --no-merged "
    "--contains --sort --format --column --no-column --color --no-color --points-at --abbrev "
    "-n --ignore-case -i"
)
GLOBAL_FLAGS = word_set(
    "--no-pager -P --no-replace-objects --literal-pathspecs --no-optional-locks --no-advice "
    "--icase-pathspecs"
)
GLOBAL_VALUE_OPTIONS = word_set(
    "--git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source"
)
EXCLUDING_PATHSPEC = re.compile(r":(?:[!^]|\(exclude\))/?(.*)", re.DOTALL)
UNTRACKED_OPTIONS = ("--untracked", "--no-index", "--no-exclude-standard")

# ------------------------------------------------------------ what prints content

OBJECT_NAME = re.compile(r"[0-9a-fA-F]{4,64}(?:\^\{\w*\})?")  # perhaps of a file
FILE_OF_COMMIT = re.compile(r"[^:{}]*:(?:[0-3]:)?[\w.].*", re.DOTALL)  # HEAD:src/a.py, :0:a.py
PATHSPEC_MAGIC = re.compile(r":[(!^]")
# Subcommands that print changes without further options, and those that need an option for it.
PATCH_SUBCOMMANDS = word_set("diff show format-patch range-diff")
LOG_SUBCOMMANDS = word_set(
    "log whatchanged reflog diff-tree diff-index diff-files rev-list shortlog cherry show-branch"
)
NAMED_FILE_SUBCOMMANDS = word_set("blame annotate cat-file")  # print only files that are named
SUMMARY_OPTIONS = word_set(
    "--stat --shortstat --numstat --name-only --name-status --summary --raw --dirstat --quiet "
    "--no-patch --compact-summary -s"
)
# Options of log and diff that print no content.
PLAIN_OPTIONS = SUMMARY_OPTIONS | word_set(
    "--oneline --graph --all --decorate --no-decorate --format --pretty --date --since --after "
    "--until --before --author --committer --grep --all-match --invert-grep --merges --no-merges "
    "--first-parent --follow --reverse --max-count --skip --branches --tags --remotes --glob "
    "--exclude --topo-order --date-order --author-date-order --abbrev-commit --no-abbrev-commit "
    "--abbrev --color --no-color --diff-filter --find-renames --find-copies --no-renames "
    "--find-copies-harder --ignore-all-space --ignore-space-change --ignore-blank-lines "
    "--ignore-space-at-eol --ignore-cr-at-eol --left-right --cherry-pick --cherry-mark --cherry "
    "--count --relative --no-relative --cached --staged --merge-base --exit-code --no-ext-diff "
    "--no-textconv --parents --children --boundary --simplify-by-decoration --show-pulls "
    "--full-history --simplify-merges --ancestry-path --not --walk-reflogs --no-walk --source "
    "--use-mailmap --no-mailmap --mailmap --no-notes --minimal --patience --histogram "
    "--diff-algorithm --root --stat-width --stat-name-width --stat-count --full-index --numbered "
    "--email --group --objects --pickaxe-all --pickaxe-regex --regexp-ignore-case "
    "--extended-regexp --fixed-strings --perl-regexp --relative-date --ignore-submodules "
    "--no-prefix --max-parents --min-parents --no-commit-id --always --verbose --independent"
)
CACHED = frozenset({"--cached", "--staged"})
PLAIN_LETTERS = frozenset("sqwbEFgzrRaivtD")  # short options of log and diff without content
PLAIN_VALUE_LETTERS = frozenset("nSGlMCBXO")
# Options without a value: a word after one is not its value.
FLAGS = word_set(
    "-p -u --patch -w -b -s --stat --shortstat --numstat --name-only --name-status --raw --oneline "
    "--graph --all --cached --staged --follow --reverse --no-merges --color --no-color"
)
