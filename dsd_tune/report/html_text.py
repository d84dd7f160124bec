"""HTML that is escaped by construction: text becomes HTML only through `element`."""

from __future__ import annotations

import html


class Html(str):
    """A piece of HTML. Plain strings are text, and are escaped wherever they meet one."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Html:
    """An element; an attribute such as `class_` loses its underscore, and `data_copy` becomes `data-copy`."""
    written = "".join(f' {_attribute(key)}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


def void(tag: str, /, **attributes: str) -> Html:
    """An element that cannot have children."""
    return Html(element(tag, **attributes).removesuffix(f"</{tag}>"))


def joined(*children: str) -> Html:
    """Pieces one after the other."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
