"""Sphinx settings."""

from dpcvx import __version__

project = "dpcvx"
author = "the dpcvx contributors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_typehints = "none"
exclude_patterns = ["_build"]
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_title = f"dpcvx {__version__}"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}


def setup(app):
    # In docstrings |y| is an absolute value, not a reStructuredText substitution.
    def keep_bars(app, what, name, obj, options, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    # Methods that scikit-learn adds refer to labels of its own pages.
    def skip_requests(app, what, name, obj, skip, options):
        return True if name.startswith("set_") and name.endswith("_request") else None

    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    app.connect("autodoc-skip-member", skip_requests)
