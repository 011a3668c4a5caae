"""Removes secrets from texts before they are written.

It recognises the formats of well-known tokens, and the values of secret environment variables
(lib/text/redaction.py). Used by cassette.py and apps/assembly/redaction.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from treadle.lib.text.redaction import REDACTED, find_secrets, redact

_TOKEN_PATTERNS = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
          (?:(?!-----END)[^"])*(?:-----END\ [A-Z ]*PRIVATE\ KEY-----)?
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}           # OpenAI, Anthropic, OpenRouter, DeepSeek
    | \b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}  # Stripe
    | \bgsk_[A-Za-z0-9]{20,}                      # Groq
    | \bxai-[A-Za-z0-9]{20,}
    | \bhf_[A-Za-z0-9]{20,}
    | \bAIza[A-Za-z0-9_-]{30,}                    # Google
    | \b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}             # Slack
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b               # AWS
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web tokens
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/=-]{12,}
    | (?<=://)[^/\s:@"]+:[^/\s:@"]+(?=@)          # user and password in an address
    """,
    re.VERBOSE,
)

# Every token contains one of these, so most texts need no search by the pattern.
_TOKEN_MARKERS = (
    *("-----BEGIN", "sk-", "pk-", "rk-", "sk_", "rk_", "gsk_", "xai-", "hf_", "AIza", "ghp_"),
    *("gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "eyJ"),
    *("earer ", "://"),
)


class SecretRedactor:
    """Removes the secrets of this process, which are looked up once."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._secrets = find_secrets(os.environ if environ is None else environ)

    def redact_text(self, text: str) -> str:
        text = redact(self._secrets, text)
        if any(marker in text for marker in _TOKEN_MARKERS):
            text = _TOKEN_PATTERNS.sub(REDACTED, text)
        return text

    def redact_value(self, value: Any) -> Any:
        """A JSON value with every string redacted; keys stay as they are."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {key: self.redact_value(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_value(inner) for inner in value]
        return value
