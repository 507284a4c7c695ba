"""Sphinx settings."""

import os

from sphinx_gallery.sorting import ExplicitOrder

from dpcvx import __version__

os.environ["MPLBACKEND"] = "agg"

project = "dpcvx"
author = "the dpcvx contributors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
extensions += ["sphinx_gallery.gen_gallery", "sphinx-mathjax-offline"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_typehints = "none"
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst"]
nitpicky = False

EXAMPLES = ("wages", "police_stops", "fertility", "mortgages", "ratings", "genes")
EXAMPLES += ("text", "survey_groups", "team_ledger", "service")
# The examples run whenever they have changed; an example that fails stops the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_.*\.py",
    "within_subsection_order": ExplicitOrder([f"plot_{name}.py" for name in EXAMPLES]),
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "show_signature": False,
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"dpcvx {__version__}"
html_static_path = ["_static"]
html_css_files = ["dpcvx.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}
html_sidebars = {"index": []}


def setup(app):
    # In docstrings |y| is an absolute value, not a reStructuredText substitution.
    def keep_bars(app, what, name, obj, options, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    # Methods that scikit-learn adds refer to labels of its own pages.
    def skip_requests(app, what, name, obj, skip, options):
        return True if name.startswith("set_") and name.endswith("_request") else None

    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    app.connect("autodoc-skip-member", skip_requests)
