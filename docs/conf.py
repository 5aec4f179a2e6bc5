"""Sphinx configuration: MyST pages, the pydata theme, generated reference pages, an executed gallery and notebooks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fsibench

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

# Pages must not depend on what this machine has fetched or mirrored.
os.environ["FSIBENCH_CACHE"] = str(HERE / "_build" / "cache")
os.environ.pop("FSIBENCH_MIRROR", None)

project = "fsibench"
author = "The fsibench authors"
copyright = author
version = release = fsibench.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "reference_pages",  # ours, in _ext: a page per method and data set, tables of metrics and protocols
]
exclude_patterns = ["_build", "_ext", "gallery", "_gallery/*.ipynb", "_gallery/*.py", "_gallery/*.json", "_gallery/*.zip", "README.md", "sg_execution_times.rst", "_gallery/sg_execution_times.rst"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
myst_enable_extensions = ["colon_fence", "deflist"]  # formulas are Unicode: pages open without a network
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True

autodoc_typehints = "description"
autodoc_member_order = "bysource"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "_gallery",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 5,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "fsibench"
copybutton_exclude = ".linenos, .gp"  # a copied command has no prompt
# Pages without pages below them need no list of these: an empty column would narrow their code.
html_sidebars = {page.relative_to(HERE).with_suffix("").as_posix(): [] for page in (*HERE.glob("*.md"), *HERE.glob("notebooks/*.ipynb"))}
html_theme_options = {
    "navigation_with_keys": True,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
