"""The environment variables of a command: an allow-list, and never a secret.

What a secret is, is defined in lib/text/redaction.py. Used by `local.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from treadle.lib.files.search_path import DEFAULT_PATH
from treadle.lib.text.redaction import is_secret

_INHERITED = """
PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERMINFO EDITOR VISUAL
XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_DATA_DIRS XDG_CONFIG_DIRS
VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYTHONPATH PYTHONDONTWRITEBYTECODE
PYTHONUNBUFFERED UV_CACHE_DIR POETRY_HOME PIPX_HOME
NVM_DIR NODE_PATH NODE_OPTIONS NODE_EXTRA_CA_CERTS PNPM_HOME BUN_INSTALL DENO_DIR
CARGO_HOME RUSTUP_HOME RUSTFLAGS RUST_BACKTRACE GOPATH GOROOT GOCACHE GOFLAGS GOPROXY
JAVA_HOME MAVEN_HOME GRADLE_HOME ANDROID_HOME SDKMAN_DIR RBENV_ROOT GEM_HOME DOTNET_ROOT
CC CXX CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH
SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE GIT_SSL_CAINFO PIP_CERT
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
NO_COLOR SOURCE_DATE_EPOCH
LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME
LC_ADDRESS LC_IDENTIFICATION LC_MEASUREMENT LC_NAME LC_PAPER LC_TELEPHONE
"""
INHERITED_VARIABLES = frozenset(_INHERITED.split())
"""Inherited by name."""

FIXED_VARIABLES = {
    "TERM": "dumb",  # no colours, no cursor movements
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Set for every command: there is no terminal and no user input."""

UNSANDBOXED_VARIABLES = frozenset(
    {"SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY"}
)
"""Access to the user's other programs: inherited only outside the sandbox."""

_PROVIDER_VARIABLES = re.compile("(?i)(AWS|AZURE|GOOGLE|GCP|GCLOUD|OPENAI|ANTHROPIC|TREADLE)_")
"""Variables that name the user's accounts and profiles: not secret, but not for commands."""


def build_environment(
    environ: Mapping[str, str],
    *,
    sandboxed: bool,
    passthrough: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a command.

    `passthrough` are further names that the user allows; a secret is not passed even then.
    `extra` is what the caller sets for this command, unchecked.
    """
    allowed = INHERITED_VARIABLES | frozenset(passthrough)
    allowed |= frozenset() if sandboxed else UNSANDBOXED_VARIABLES
    kept = {
        name: value
        for name, value in environ.items()
        if name in allowed and not _PROVIDER_VARIABLES.match(name) and not is_secret(name, value)
    }
    kept.setdefault("PATH", DEFAULT_PATH)
    return {**kept, **FIXED_VARIABLES, **(extra or {})}
