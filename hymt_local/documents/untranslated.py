"""HTML elements whose content stays as it is, wherever HTML occurs."""

from __future__ import annotations

import re

LEFT_ALONE = frozenset(
    {"script", "style", "pre", "code", "kbd", "samp", "var", "svg", "math", "template", "textarea", "object", "tt"}
)
_NAME = re.compile(r"<([A-Za-z][^\s/>]*)")
_NO = re.compile(
    r"\stranslate\s{0,9}=\s{0,9}[\"']?no(?=[\"'\s/>])|\sclass\s{0,9}=\s{0,9}(?:\"[^\"]{0,999}|'[^']{0,999}|)"
    r"(?<![\w-])notranslate(?![\w-])",
    re.IGNORECASE,
)


def is_left_alone(start_tag: str) -> bool:
    """Tell by its start tag whether an element is code, drawing or marked as not to be translated."""
    match = _NAME.match(start_tag)
    return match is not None and (match[1].lower() in LEFT_ALONE or _NO.search(start_tag) is not None)
