"""A page that stands on its own: text, tables and pictures in one HTML file."""

from __future__ import annotations

from importlib.resources import files

from iam_lab.report.markup import Markup, joined, tag


def page(title: str, *content: str | Markup, extra_css: str = "") -> str:
    """The whole document; style and pictures are in it, and it loads nothing.

    >>> page("Toy", tag("h1", "Toy")).startswith("<!doctype html>")
    True
    """
    style = files("iam_lab.report").joinpath("page.css").read_text() + extra_css
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            tag("style", Markup(style)),
        ]
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{joined(content)}</body></html>\n'


def figure(svg: str, caption: str | Markup) -> Markup:
    """A picture with what it shows below it."""
    return tag("figure", Markup(svg), tag("figcaption", caption))


def figures(*pictures: Markup) -> Markup:
    """Pictures side by side where there is room."""
    return tag("div", *pictures, css="figures")
