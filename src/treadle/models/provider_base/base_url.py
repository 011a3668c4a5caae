"""Checks the base URL of a provider, to which the paths of requests are appended.

Used by the models and the registry, when a model is made: a wrong URL is a ConfigError that names
the setting, not a failed request.
"""

from functools import lru_cache

from treadle.core.errors import ConfigError
from treadle.lib.http.urls import parse_route, redact_url


def check_base_url(url: str, setting: str) -> None:
    """Raise ConfigError unless paths can be appended to this URL; `setting` is where it is set."""
    if problem := _find_problem(url):
        remedy = "set it to an address such as https://api.example.com/v1"
        raise ConfigError(f"{setting}: {problem}; {remedy}")


@lru_cache(maxsize=64)
def _find_problem(base_url: str) -> str:
    try:
        parse_route(base_url, {})
    except ValueError as error:
        return str(error)
    if "?" in base_url or "#" in base_url:
        return f"a base URL has no '?' and no '#': {redact_url(base_url)!r}"
    return ""
