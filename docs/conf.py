"""Configuration of the documentation site. `make docs` builds it."""

from __future__ import annotations

import sys
from pathlib import Path

from det_core.version import __version__

sys.path.append(str(Path(__file__).with_name("_ext")))

project = "det"
author = "The det developers"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "repository_files", "pictures"]
exclude_patterns = ["_*"]
default_role = "code"

myst_enable_extensions = ["deflist", "fieldlist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_ambiguous"]

html_theme = "furo"
html_title = f"det {version}"
html_static_path = ["_static"]
html_css_files = ["det.css"]
html_favicon = "_static/det.svg"
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
