"""Values as YAML that all readers take alike, be it Python's (YAML 1.1) or Go's (nearer to 1.2): strings are quoted."""

from __future__ import annotations

import json
import re

_UNFIT = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
"""Characters that JSON leaves as they are and YAML folds, refuses or drops."""

_PLAIN_KEY = re.compile(r"(?!(?i:true|false|null)$)[A-Za-z][\w.+-]{3,}", re.ASCII)
"""Names that no YAML reader takes for anything else; the shorter `on`, `off`, `yes` and `no` are booleans to some."""


def flow(value: object) -> str:
    """JSON on one line, which is YAML too. YAML knows no surrogate pairs, so letters stay letters."""
    return _UNFIT.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def quoted(word: str) -> str:
    """A string. One with double quotes, as JSON is, goes into single ones, where it stays readable."""
    if word.isprintable() and ('"' in word or "\\" in word):
        return "'" + word.replace("'", "''") + "'"
    return flow(word)


def key(name: str) -> str:
    """A mapping's key, without quotes where it can be."""
    return name if _PLAIN_KEY.fullmatch(name) else flow(name)
