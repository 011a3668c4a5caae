"""Paths that decide what programs run later, or what an agent is told: the one list of them.

The policy asks before a tool or a visible command writes one of them; the sandbox keeps commands
from changing them. Both use the tables here; neither has names of its own. Names are compared in
any case, at any depth. Knows no rules and reads no files.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from treadle.lib.text.word_set import word_set

GIT_FOLDER = ".git"

PROTECTED_FOLDERS = word_set(
    """
    .treadle .claude .codex .cursor .gemini .opencode .vscode .idea .zed .fleet .husky .githooks
    .git-hooks .devcontainer .ssh .gnupg .aws .kube .docker .direnv .lefthook .agents .continue
    .windsurf .kiro .amazonq .hg .jj .mise .mvn .vim .nvim .emacs.d .roo .cline .junie .trae
    .helix .qwen .factory .run .bsp .theia .circleci .buildkite .woodpecker .externaltoolbuilders
    .semaphore .teamcity .tekton .azure-pipelines .builds .openhands .kilocode .codesandbox .idx
    _darcs .pijul .sl .vs .vim-lsp-settings .augment .goose .copilot .joyride .calva .lsp .gitpod
    .ona .envrc.d .pi .kimi .rovodev .droid .agent .clinerules .amp .devin .antigravity .grok .vibe
    .tabnine .zencoder .forge .warp .firebender .ruler .nova .harness bamboo-specs
    """
)
_MISE_ENVIRONMENTS = word_set("dev development test testing staging ci prod production")
PROTECTED_FILES = word_set(
    """
    .mcp.json .envrc .gitconfig .gitmodules .bashrc .bash_profile .bash_login .bash_logout
    .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc
    .login .inputrc .netrc .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pypirc .condarc .vimrc
    .exrc .nvimrc .lldbinit .gdbinit .irbrc .pryrc .rprofile .tmux.conf .xinitrc .xprofile
    .xsession .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml .lefthook.yml
    .mise.toml .tool-versions .ripgreprc .wgetrc .curlrc .aiderrc .aider.conf.yml
    .git-credentials .pythonrc .pdbrc sitecustomize.py usercustomize.py authorized_keys
    lefthook.yaml lefthook-local.yml lefthook-local.yaml .lefthook.yaml .lefthook-local.yml
    .lefthook-local.yaml mise.toml mise.local.toml .mise.local.toml .devcontainer.json
    .dir-locals.el .nvim.lua .bazelrc .direnvrc .overcommit.yml opencode.json opencode.jsonc
    .sqliterc .psqlrc .lessfilter .screenrc .ghci .ocamlinit .lvimrc .miserc.toml .roomodes
    .rtx.toml .rtx.local.toml .crush.json crush.json .lazy.lua .pnpmfile.mjs .autoenv.zsh
    .autoenv_leave.zsh .gitlab-ci.yml .gitlab-ci.yaml jenkinsfile azure-pipelines.yml .travis.yml
    appveyor.yml .drone.yml bitbucket-pipelines.yml .cirrus.yml .bazeliskrc rust-toolchain
    rust-toolchain.toml bunfig.toml .pnp.cjs .pnp.loader.mjs .pylintrc pylintrc .iex.exs .octaverc
    .byebugrc .rdbgrc .perldb .ackrc .dir-locals-2.el .justfile .tigrc .rspec .renviron
    devbox.json .envrc.local .sbtopts .jvmopts .perltidyrc .perlcriticrc .psysh.php .rdata
    .bazelversion .ycm_extra_conf.py .luarc.json .luarc.jsonc .pylintrc.toml .gitpod.yml .replit
    azure-pipelines.yaml .azure-pipelines.yml .appveyor.yml .woodpecker.yml .woodpecker.yaml
    .cirrus.star .build.yml buildspec.yml cloudbuild.yaml codefresh.yml bitrise.yml .vimrc.local
    .gvimrc _vimrc _exrc _gvimrc .local.vimrc .lite_project.lua .kateproject .neoconf.json
    .vimspector.json .project .pdbrc.py .ghcid pnpmfile.js .arcconfig .arclint .continuerc.json
    .opencode.json .envrc.private .xcode.env .xcode.env.local .rvmrc .rbenv-vars .powrc .powenv
    .erlang ipython_config.py .buckconfig .buckconfig.local .plzconfig .pants.rc .lefthookrc
    .huskyrc .lintstagedrc .lintstagedrc.json .lintstagedrc.yaml .lintstagedrc.yml .lintstagedrc.js
    .lintstagedrc.cjs .lintstagedrc.mjs lint-staged.config.js lint-staged.config.cjs
    lint-staged.config.mjs .simple-git-hooks.js .simple-git-hooks.cjs .simple-git-hooks.json
    simple-git-hooks.js simple-git-hooks.cjs simple-git-hooks.json .lazygit.yml ansible.cfg
    .rspec-local .rdbgrc.rb .jrubyrc .proverc .user.ini .yardopts .mill-jvm-opts .mill-version
    .nrepl.edn .gitpod.dockerfile .stackblitzrc replit.nix netlify.toml vercel.json render.yaml
    amplify.yml lefthook.toml .lefthook.toml lefthook-local.toml .lefthook-local.toml lefthook.json
    .lefthook.json lefthook-local.json .lefthook-local.json prek.toml hk.pkl captainhook.json
    grumphp.yml grumphp.yml.dist gptme.toml .drone.star .cirrus.yaml wercker.yml buildspec.yaml
    cloudbuild.yml .kakrc .lldbinit-xcode
    """
) | {f"{dot}mise.{name}.toml" for dot in ("", ".") for name in _MISE_ENVIRONMENTS}
PROTECTED_PAIRS = frozenset(
    {
        (".cargo", "config"), (".cargo", "config.toml"), (".config", "git"), (".config", "fish"),
        (".yarn", "plugins"), (".yarn", "releases"), (".local", "bin"), (".config", "mise"),
        (".config", "mise.toml"), (".bundle", "config"), ("mise", "config.toml"),
        (".github", "workflows"), (".github", "actions"),
        (".github", "hooks"), (".github", "instructions"), (".github", "prompts"),
        (".github", "agents"), (".github", "chatmodes"), (".github", "skills"),
        ("tools", "bazel"), (".gitlab", "ci"), (".forgejo", "workflows"),
        (".gitea", "workflows"), (".depot", "workflows"), (".config", "lefthook.yml"),
        (".config", "husky"), (".config", "zed"), (".config", "nvim"),
    }
)  # fmt: skip
GENERATED_FOLDERS = word_set(
    """
    node_modules .venv venv site-packages __pycache__ .tox .nox .mypy_cache .pytest_cache
    """
)
"""Folders that tools fill: no program takes its settings from deep inside of them."""

PROTECTED_SUFFIXES = (".code-workspace", ".sublime-project", ".sublime-workspace", ".run.xml")

PROTECTED_IN_GIT = (
    "config", "hooks", "modules", "config.worktree", "commondir", "info/attributes",
)  # fmt: skip
"""In a git folder, which commands have to write to. Tools are asked about all of it."""

PROTECTED_IN_WORKTREE = ("config.worktree", "modules")
"""The same in the folder of a linked worktree, `.git/worktrees/NAME`."""

MEMORY_FILES = word_set(
    """
    agents.md agents.local.md agents.override.md claude.md claude.local.md gemini.md
    copilot-instructions.md .cursorrules .windsurfrules .clinerules .roorules .goosehints agent.md
    qwen.md crush.md warp.md replit.md .rules .augment-guidelines .openhands_instructions .traerules
    .kilocoderules
    """
)
"""What agents read as instructions. The user is asked; a command in the sandbox may change them,
and its result says so."""

_ENV_EXAMPLE_SUFFIXES = (".example", ".sample", ".template", ".dist", ".defaults", ".schema")


def fold_case(text: str) -> str:
    """The text as a file system that ignores case and Unicode forms compares it."""
    if text.isascii():
        return text.lower()
    import unicodedata

    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in plain if unicodedata.category(c) != "Cf")


def find_protected_part(path: str) -> tuple[str, ...]:
    """The part of a path that a tool is asked about before it writes there, or ()."""
    segments = _fold_segments(path)
    for at, segment in enumerate(segments):
        if segment == GIT_FOLDER:
            return tuple(segments[at : at + 2])
    last = segments[-1] if segments else ""
    if last in MEMORY_FILES or is_env_file(last):
        return find_read_only_part(path) or (last,)
    return find_read_only_part(path)


def find_kept_part(path: str) -> tuple[str, ...]:
    """The same, but what commands of git change in a repository is not protected from commands."""
    part = find_protected_part(path)
    kept = {name.partition("/")[0] for name in PROTECTED_IN_GIT}
    is_of_git = len(part) > 1 and part[0] == GIT_FOLDER and part[1] not in kept
    return () if is_of_git else part


def find_read_only_part(path: str) -> tuple[str, ...]:
    """The part of a path that is read-only for sandboxed commands, or (); not about .git."""
    segments = _fold_segments(path)
    for at, segment in enumerate(segments):
        if segment in PROTECTED_FOLDERS:
            return (segment,)
        if (segment, *segments[at + 1 : at + 2]) in PROTECTED_PAIRS:
            return tuple(segments[at : at + 2])
    last = segments[-1] if segments else ""
    return (last,) if last in PROTECTED_FILES or last.endswith(PROTECTED_SUFFIXES) else ()


def find_aliased_part(path: str) -> tuple[str, ...]:
    """The part of a path that may be written only under its own name, not through a symlink."""
    segments = _fold_segments(path)
    return (GIT_FOLDER,) if GIT_FOLDER in segments else find_read_only_part(path)


def is_read_only_name(folder: str, name: str) -> bool:
    """Whether the entry `name` of a folder with this name is read-only for sandboxed commands."""
    folded = fold_case(name)
    return (
        folded in PROTECTED_FOLDERS
        or folded in PROTECTED_FILES
        or folded.endswith(PROTECTED_SUFFIXES)
        or (fold_case(folder), folded) in PROTECTED_PAIRS
    )


def describe_use(part: tuple[str, ...]) -> str:
    """Why a protected part matters, for a question to the user."""
    is_memory = part[-1:] and part[-1] in MEMORY_FILES
    return "agents read it as instructions" if is_memory else "programs run what is in it"


def is_env_file(name: str) -> bool:
    """Whether it is an .env file, and not an example of one."""
    return name == ".env" or (name.startswith(".env.") and not name.endswith(_ENV_EXAMPLE_SUFFIXES))


def _fold_segments(path: str) -> list[str]:
    return [fold_case(segment) for segment in PurePosixPath(path).parts if segment != "/"]
