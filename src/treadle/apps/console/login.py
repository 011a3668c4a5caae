"""`treadle login`: takes the key of a provider, checks it with one request, and keeps it.

    treadle login [PROVIDER]          ask for a key; a key on standard input is taken as it is
    treadle login --remove PROVIDER   forget the key

Also offered at the first start (embedded_setup.py). stored_keys.py keeps the keys.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, command, print_line
from treadle.apps.settings.stored_keys import open_key_store
from treadle.core.errors import AccessDenied, ModelError, TreadleError
from treadle.models.registry.providers import KNOWN_PROVIDERS, ProviderEntry, find_key

USAGE = """\
usage: treadle login [PROVIDER]          give the key of a provider: it is checked and kept
       treadle login --remove PROVIDER   forget the key"""
CHECK_TOKENS = 16
CHECK_PROMPT = "Answer with the word yes."

Asker = Callable[[str], str]


@command("treadle login", USAGE)
def run(arguments: list[str]) -> int:
    match arguments:
        case ["--remove", name]:
            return _remove(_find_provider(name))
        case [*names] if len(names) <= 1 and not any(name.startswith("-") for name in names):
            return log_in(names[0] if names else "")
    print(USAGE, file=sys.stderr)
    return exit_codes.USAGE_ERROR


def log_in(name: str = "", ask: Asker = input, ask_secret: Asker | None = None) -> int:
    """Ask for a provider and its key, check it and keep it; the exit code."""
    is_terminal = sys.stdin.isatty()
    provider = _find_provider(name) if name else _choose_provider(ask)
    variable = provider.key_variables[0]
    if found := _find_key_elsewhere(variable):
        file, key = found
        if is_terminal and ask(f"{variable} is in {file}. Use it? [y/N] ").strip().lower() == "y":
            return _check_and_keep(provider, key)
    if ask_secret is None:
        from getpass import getpass

        ask_secret = getpass if is_terminal else lambda _: sys.stdin.readline()
    key = ask_secret(f"Key of {provider.name}, which is not shown (Enter: none): ").strip()
    if not key:
        print_line("no key was given; nothing is changed")
        return exit_codes.ERROR
    return _check_and_keep(provider, key)


def list_login_providers() -> list[ProviderEntry]:
    """The providers that take a key and have a default model; `openai-chat` is `openai`."""
    return [
        provider
        for provider in KNOWN_PROVIDERS.values()
        if provider.needs_key and provider.default_model and provider.name != "openai-chat"
    ]


def _find_provider(name: str) -> ProviderEntry:
    found = {provider.name: provider for provider in list_login_providers()}
    if name not in found:
        raise UsageError(f"{name!r} is no provider that takes a key: {', '.join(found)}")
    return found[name]


def _choose_provider(ask: Asker) -> ProviderEntry:
    providers = list_login_providers()
    for number, provider in enumerate(providers, 1):
        is_set = f"  {provider.key_variables[0]} is set" if find_key(provider, os.environ) else ""
        print_line(f"  {number:2} {provider.name:<12}{provider.default_model:<32}{is_set}".rstrip())
    answer = ask("Provider, by its number or name: ").strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(providers):
        return providers[int(answer) - 1]
    return _find_provider(answer)


def _find_key_elsewhere(variable: str) -> tuple[Path, str] | None:
    """A key in a file of another agent: Codex has one if the user logged in with it."""
    file = Path.home() / ".codex" / "auth.json"
    try:
        content = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):
        return None
    key = content.get(variable)
    return (file, key) if isinstance(key, str) and key else None


def _check_and_keep(provider: ProviderEntry, key: str) -> int:
    name, variable = f"{provider.name}/{provider.default_model}", provider.key_variables[0]
    before = os.environ.get(variable)
    os.environ[variable] = key
    print_line(f"checking the key with one request to {name} …")
    try:
        asyncio.run(_check(name))
        checked = f"{provider.name} accepts the key"
    except AccessDenied as error:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
        print_line(f"{error} The key is not kept.")
        return exit_codes.ACCESS_DENIED
    except (ModelError, TreadleError) as error:
        checked = f"the key could not be checked ({error})"
    where = open_key_store().save(variable, key)
    print_line(f"{checked}; it is kept in {where}.")
    print_line(f"`treadle login --remove {provider.name}` removes it.")
    if before:
        print_line(f"{variable} is set in your shell, too: that one is used there.")
    return exit_codes.SUCCESS


async def _check(name: str) -> None:
    from treadle.core.contracts.model import ModelOptions, ModelRequest
    from treadle.core.transcript.items import to_user_item
    from treadle.core.transcript.transcript import Transcript
    from treadle.models import registry

    model = registry.model(name)
    options = ModelOptions(max_tokens=CHECK_TOKENS)
    request = ModelRequest(Transcript([to_user_item(CHECK_PROMPT)]), options=options)
    try:
        async for _ in model.stream(request):
            pass
    finally:
        await model.aclose()


def _remove(provider: ProviderEntry) -> int:
    variable = provider.key_variables[0]
    if not open_key_store().remove(variable):
        print_line(f"no key of {provider.name} is kept")
        return exit_codes.ERROR
    print_line(f"the key of {provider.name} is removed")
    return exit_codes.SUCCESS
