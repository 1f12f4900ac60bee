"""The documentation site: Sphinx reads docs/, the course in notebooks/ and the reports in results/, where they lie."""

import sys
import tomllib
import typing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
typing.GENERATING_DOCUMENTATION = "vit_vs_cnn"  # jaxtyping: Float[Tensor, "batch tokens"], as the source says it

from vit_vs_cnn import __version__ as release  # noqa: E402

project, author, copyright = "vit_vs_cnn", "the authors of vit_vs_cnn", "the authors of vit_vs_cnn, MIT license"
version = release
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "notebooks/zh/*.ipynb",
    "notebooks/README.md",
    "results/README.md",
    "results/*/README.md",
    "results/ladder/locality_ladder/README.md",
    "CHANGELOG.md",
]
include_patterns += ["results/speed/speed.md", "results/calibration/conclusions.md"]
exclude_patterns = ["**.ipynb_checkpoints", "docs/templates", "docs/static"]
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "docs.generated",
    "docs.mathml",
    "docs.translations",
]

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are committed with what running them printed
nb_render_markdown_format = "myst"

napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # of Lightning
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!vit_vs_cnn\b).*")]  # of other libraries: their documentation is elsewhere
#: Names of types alone: unions, variables, dictionaries of options, the base of a class that is documented.
ONLY_NAMES = (
    *("attention.functional.AttentionOptions", "attention.windows.sliding.WindowOptions"),
    "attention.windows.blocks.BlockOptions",
    "attention.convolution.head_fit.HeadFit",
    *(
        "data.decoding.InputImage",
        "data.augmentation.augmenter.CustomTransform",
    ),
    "inspection.saliency.SaliencyRequest",
    *("images.experiment_data.ExperimentData", "data.batches.TrainingBatches", "networks.trained_network.Network"),
)
nitpick_ignore = [("py:class", f"vit_vs_cnn.{name}") for name in ONLY_NAMES]

copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

smartquotes = False  # it turns the two hyphens of an option into a dash
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"vit_vs_cnn {version}"
html_logo = "static/drawings/logo.svg"
#: The address of the repository; pages have a link to it if the project names one.
PROJECT_URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
html_theme_options = {"source_repository": PROJECT_URLS["Repository"]} if "Repository" in PROJECT_URLS else {}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["front"]
html_search_scorer = str(ROOT / "docs" / "static" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
