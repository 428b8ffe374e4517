"""How the documentation is built: ``make docs``. Warnings are errors."""

import inspect

from torch_iam.version import __version__

project, author, release = "torch-iam", "The torch-iam authors", __version__
copyright = "2026, The torch-iam authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
html_theme = "furo"
html_title = f"torch-iam {release}"
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nitpicky = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_use_rtype = False
# A default that is a function or an object would print its address, new in every build.
autodoc_preserve_defaults = True


def shorten(app, what, name, obj, options, signature, returns):  # type: ignore[no-untyped-def]
    """Leave ``self`` annotations out of class signatures, which the text below lists anyway."""
    if what == "class" and inspect.isclass(obj) and signature and len(signature) > 200:
        return "(...)", returns
    return None


def setup(app):  # type: ignore[no-untyped-def]
    """Register the hook."""
    app.connect("autodoc-process-signature", shorten)
