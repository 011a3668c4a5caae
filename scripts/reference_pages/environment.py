"""The page of the environment variables: those of the settings, of the providers, and all others
that the program reads. tests/repository/test_reference.py looks for one that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scripts.reference_pages.markdown import code, list_codes, make_list, make_page
from treadle.apps.settings.settings import SETTINGS, Setting
from treadle.models.registry.providers import KNOWN_PROVIDERS, ProviderEntry
from treadle.workspace.environment import (
    FIXED_VARIABLES,
    INHERITED_VARIABLES,
    UNSANDBOXED_VARIABLES,
)

INTRODUCTION = """\
Every variable that Treadle reads, and those that its commands and hooks get. A secret in a variable
(`..._API_KEY`, `..._TOKEN`, a password in an address) reaches no command of the agent or of a hook
([secrets](../cli.md#secrets))."""
# Title of a section to variables and what they do. Variables with one meaning are one entry.
OTHERS: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "Places": {
        ("HOME",): "your home folder; `~` stands for it",
        (
            "XDG_DATA_HOME",
        ): "where `treadle/` has sessions and weights; without it `~/.local/share`",
        (
            "XDG_STATE_HOME",
        ): "where `treadle/` has what survives a crash; without it `~/.local/state`",
        ("XDG_CACHE_HOME",): "where `treadle/` has caches; without it `~/.cache`",
        ("XDG_CONFIG_HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE"): (
            "passed to helper programs, such as those of the desktop and of the clipboard"
        ),
        ("TMPDIR",): "the folder for temporary files",
        ("PATH",): (
            "where programs are looked for; entries inside your project are left out for programs "
            "of Treadle"
        ),
        ("SHELL",): "its name is told to the model; commands run with bash or `/bin/sh`",
        ("TZ",): "the time zone of schedules of a fleet",
        (
            "CODEX_HOME",
        ): "where `treadle sessions import` looks for sessions of Codex; without it `~/.codex`",
        (
            "RIPGREP_CONFIG_PATH",
        ): "if set, a search by `rg` is judged as one that may show hidden files",
    },
    "Network": {
        (
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        ): "the proxy for an address; lower case wins; this machine needs none",
        ("NO_PROXY",): "hosts that are reached without the proxy",
        ("REQUEST_METHOD",): "if set (CGI), `HTTP_PROXY` in upper case is ignored",
        (
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
        ): "the certificates of the authorities to trust, a file or a folder",
        ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"): "the same, if neither of the two above is set",
        ("NODE_EXTRA_CA_CERTS",): "a file with more authorities",
    },
    "OpenAI": {
        ("OPENAI_ORG_ID",): "the organization, sent to OpenAI's own address",
        ("OPENAI_PROJECT_ID",): "the project, sent to OpenAI's own address",
        ("OPENAI_API_VERSION",): "the version for an address of one Azure deployment",
    },
    "Bedrock": {
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"): "keys of AWS",
        ("AWS_REGION", "AWS_DEFAULT_REGION"): "the region",
        ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"): "the profile of `~/.aws`; without one `default`",
        (
            "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
        ): "instead of `~/.aws/config` and `~/.aws/credentials`",
        (
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_ROLE_ARN",
            "AWS_ROLE_SESSION_NAME",
        ): "a role of a cluster",
        ("AWS_ENDPOINT_URL_STS",): "the address that gives out roles",
        (
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        ): "the role of a container",
        ("AWS_EC2_METADATA_DISABLED",): "`true`: the metadata server is not asked",
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT",): "the address of the metadata server",
    },
    "Vertex": {
        ("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"): "a token",
        ("TREADLE_VERTEX_TOKEN_COMMAND",): "a command that prints a token",
        ("GOOGLE_APPLICATION_CREDENTIALS",): "a file with credentials",
        ("CLOUDSDK_CONFIG",): "the folder of gcloud's settings; without it `~/.config/gcloud`",
        (
            "GOOGLE_CLOUD_PROJECT",
            "GCLOUD_PROJECT",
            "CLOUDSDK_CORE_PROJECT",
            "ANTHROPIC_VERTEX_PROJECT_ID",
        ): "the project",
        (
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_REGION",
            "CLOUD_ML_REGION",
        ): "the location; without it `global`",
        ("GCE_METADATA_HOST",): "the metadata server",
    },
    "Azure": {
        ("AZURE_OPENAI_DEPLOYMENT",): "the deployment that is used when no model is named",
        ("AZURE_OPENAI_AD_TOKEN",): "a token of Entra",
        (
            "AZURE_TENANT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE",
        ): "an application, by its secret or by a token of a cluster",
        ("AZURE_AUTHORITY_HOST",): "where tokens are fetched",
        ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"): "the identity of a service of Azure",
        (
            "AZURE_USE_MANAGED_IDENTITY",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST",
        ): "the identity of a machine of Azure",
        ("AZURE_CONFIG_DIR",): "the folder of the settings of `az`; without it `~/.azure`",
        ("USERPROFILE",): "the home folder, if `HOME` is not set",
    },
    "The terminal": {
        ("TERM",): "`dumb`: no colours, plain mode",
        ("NO_COLOR",): "no colours",
        ("COLORFGBG",): "a light or a dark background, if the terminal does not answer",
        ("VISUAL", "EDITOR"): "the editor that ctrl+g opens",
        ("TEXTUAL_FPS",): "frames per second of the screen",
        (
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XAUTHORITY",
        ): "the desktop: its clipboard, its browser for a login",
        (
            "SSH_CONNECTION",
        ): "the desktop is not on this machine: no browser is opened, motion is not asked for",
        ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "XDG_CURRENT_DESKTOP"): (
            "how programs of the desktop are reached, which say whether motion is to be reduced"
        ),
        (
            "TERM_PROGRAM",
            "TERM_PROGRAM_VERSION",
            "LC_TERMINAL",
            "LC_TERMINAL_VERSION",
            "ITERM_SESSION_ID",
            "KITTY_WINDOW_ID",
            "GHOSTTY_RESOURCES_DIR",
            "WEZTERM_PANE",
            "WT_SESSION",
            "ConEmuANSI",
            "VTE_VERSION",
            "TMUX",
        ): "which terminal it is: how it shows a notification and progress",
    },
    "Telemetry and fleets": {
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        ): "the collector; OpenTelemetry's exporter reads its other variables, too",
        ("PGPASSWORD",): "the password of a PostgreSQL database",
        ("RAY_ADDRESS",): "the cluster of Ray; without it `auto`",
    },
    "Containers": {
        (
            "CONTAINERS_CONF",
            "CONTAINER_HOST",
            "DOCKER_HOST",
            "DOCKER_CONFIG",
        ): "passed to podman and docker",
    },
}
HOOK_VARIABLES = {
    (
        "TREADLE_PROJECT_DIR",
        "CLAUDE_PROJECT_DIR",
    ): "the folder of the project, for hooks and the status line",
    ("PYTHONSAFEPATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH", "NODE_OPTIONS"): (
        "set, or without entries inside the project, for your own hooks "
        "([hooks.md](../hooks.md#trust))"
    ),
}


def write_page() -> str:
    own = make_list(f"[`{one.variable}`](settings.md#{one.name})" for one in list_settings())
    sections = [
        f"## Settings\n\nEvery setting that is no table has a variable:\n\n{own}",
        f"## Keys and addresses of providers\n\nThe first key that is set chooses the default "
        f"provider.\n\n"
        f"{make_list(map(describe_provider, list_providers()))}",
        *(f"## {title}\n\n{make_list(describe_all(rows))}" for title, rows in OTHERS.items()),
        f"## What hooks get\n\n{make_list(describe_all(HOOK_VARIABLES))}",
        describe_commands(),
    ]
    return make_page("Environment variables", INTRODUCTION, *sections)


def list_settings() -> list[Setting]:
    return [one for one in SETTINGS if one.kind != "table"]


def list_providers() -> list[ProviderEntry]:
    return [one for one in KNOWN_PROVIDERS.values() if one.key_variables or one.url_variables]


def describe_provider(provider: ProviderEntry) -> str:
    parts = []
    if provider.key_variables:
        parts.append(f"key {list_codes(provider.key_variables, ' or ')}")
    if provider.url_variables:
        parts.append(f"address {list_codes(provider.url_variables, ' or ')}")
    return f"{provider.name}: {'; '.join(parts)}"


def describe_all(rows: Mapping[tuple[str, ...], str]) -> Iterable[str]:
    return (f"{list_codes(names)}: {text}" for names, text in rows.items())


def describe_commands() -> str:
    fixed = make_list(code(f"{name}={value}") for name, value in FIXED_VARIABLES.items())
    return f"""\
## What commands get

A command of the agent inherits these variables, and no others. One with a secret in it is left
out, and so is one of a provider's account.

{list_codes(sorted(INHERITED_VARIABLES), " ")}

Outside of the sandbox also: {list_codes(sorted(UNSANDBOXED_VARIABLES), " ")}

Set for every command:

{fixed}"""
