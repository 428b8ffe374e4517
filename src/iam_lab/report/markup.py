"""HTML from values: everything that is not markup is escaped on its way in.

>>> print(tag("td", "<3 & rising", css="number"))
<td class="number">&lt;3 &amp; rising</td>
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML already; any other text is escaped when it enters a tag."""

    __slots__ = ()


def escaped(content: str | Markup) -> Markup:
    """``content`` as markup.

    >>> escaped("a < b"), escaped(Markup("<b>"))
    ('a &lt; b', '<b>')
    """
    return content if isinstance(content, Markup) else Markup(html.escape(content, quote=True))


def joined(parts: Iterable[str | Markup], between: str = "") -> Markup:
    """Several pieces in a row."""
    return Markup(between.join(escaped(part) for part in parts))


def tag(name: str, *content: str | Markup, css: str = "", **attributes: str) -> Markup:
    """One element.

    >>> tag("a", "up", href="#top")
    '<a href="#top">up</a>'
    """
    given = {"class": css, **attributes} if css else attributes
    opening = "".join(f' {key}="{html.escape(value, quote=True)}"' for key, value in given.items())
    return Markup(f"<{name}{opening}>{joined(content)}</{name}>")


def table(
    head: Sequence[str | Markup], rows: Iterable[Sequence[str | Markup]], *, css: str = "", label: str = ""
) -> Markup:
    """A table whose first column names its rows, in a box that scrolls sideways where it is too wide."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    inner = tag("table", tag("thead", top), tag("tbody", *body), css=css)
    return tag("div", inner, css="scroll", role="region", tabindex="0", **{"aria-label": label or "table"})


def items(entries: Iterable[str | Markup], css: str = "") -> Markup:
    """An unordered list; nothing for none."""
    listed = [tag("li", entry) for entry in entries]
    return tag("ul", *listed, css=css) if listed else Markup("")
