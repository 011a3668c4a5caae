"""Keys of providers that the user gave to `treadle login`.

The program puts them into its own environment when it starts, as if the user had exported them:
commands do not get them (workspace/environment), and they are redacted.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping

from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.secret_store import SecretStore, find_keyring


def open_key_store() -> SecretStore:
    """The keys by the names of their variables."""
    file = treadle_home() / "keys.json"
    return SecretStore(file, "treadle-keys", find_keyring, log_in_again="treadle login")


def load_keys(environ: MutableMapping[str, str]) -> None:
    """Set the variables of the stored keys, unless they are set. Without a key that is needed the
    model says so."""
    store = open_key_store()
    try:
        for variable in store.names():
            if not environ.get(variable, "").strip() and (key := store.load(variable)):
                environ[variable] = key
    except ConfigError as error:
        print(f"treadle: {error}", file=sys.stderr)
