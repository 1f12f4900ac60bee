"""Sphinx directives that generate the reference from the settings of commands and configs.

``settings`` lists the settings of a config under one name, and ``command`` a command with its options. ``configs``
lists the configs of the package, and ``lesson-figures`` draws figures of the notebooks. ``Reference:`` and
``Differs:`` in docstrings become fields. Images of ``static/drawings`` become part of the page. Notebooks get links to
Colab and Binder.
"""

import importlib
import re
import textwrap
from collections.abc import Iterator
from html import escape
from os.path import relpath
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from docs.drawings import FOLDER
from vit_vs_cnn.commands import COMMANDS, Command, describe, option_word, positional_word
from vit_vs_cnn.config.experiment import dotted_settings, find_config
from vit_vs_cnn.config.trainer import trainer_settings
from vit_vs_cnn.typed_values import REQUIRED, Setting, describe_type, list_settings, walk

#: Figure that is not drawn here, because it trains a Transformer.
TRANSFORMER_FIGURE = "transformer_heads"
#: Fields of docstrings in addition to those of napoleon.
FIELD_NAMES = re.compile(r"(References?|Differs): ")

#: HTML of Sphinx and MyST-NB, and more accessible HTML for keyboards, screen readers and style sheets.
HTML_REPLACEMENTS = {
    "<pre>": '<pre tabindex="0">',
    '<div class="math">': '<div class="math" tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
    '<span class="pre">--': '<span class="pre option">--',
    '<summary aria-label="Toggle hidden content">': "<summary>",
}
#: Opening tag of Furo's list of pages.
SIDEBAR = '<aside class="sidebar-drawer">'

#: Modules whose public names must all be in the reference.
PUBLIC_MODULES = ("vit_vs_cnn", "vit_vs_cnn.attention", "vit_vs_cnn.models", "vit_vs_cnn.inspection")
#: Elements whose text is shown as it is.
VERBATIM = (nodes.literal, nodes.math, nodes.FixedTextElement)
#: HTML of the arguments of a signature on several lines, and of one argument.
ARGUMENTS = re.compile(r'<dl>\s*(<dd><em class="sig-param">.*?)</dl>', re.DOTALL)
ARGUMENT = re.compile(r"<dd>(.*?)</dd>", re.DOTALL)


def every_setting() -> dict[str, Setting]:
    """The settings of a config by their dotted names. ``NAME`` is the name of a model."""
    return dotted_settings() | dict(walk(trainer_settings(), "trainer."))


def settings_page(prefix: str) -> str:
    """Settings under a name, as Markdown. An empty name gives the top level."""
    chosen = {name: setting for name, setting in every_setting().items() if _is_under(name, prefix)}
    if not chosen:
        raise ValueError(f"no setting begins with {prefix!r}")
    return "\n".join(line for name, setting in chosen.items() for line in _setting(name, setting))


def _is_under(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}.") if prefix else "." not in name


def _setting(name: str, setting: Setting) -> Iterator[str]:
    yield from (f"````{{confval}} {name}", f":type: {plain(describe_type(setting.hint))}")
    yield from ([] if setting.default is REQUIRED else [f":default: {plain(_default(setting.default))}"])
    yield from ("", plain(setting.help), "````", "")


def _default(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(list(value) if isinstance(value, tuple) else value or {str: "''"}.get(type(value), value))


def command_page(command: Command) -> str:
    """Description and options of a command, as Markdown."""
    settings = list_settings(command.function)
    lines = ["```text", command.usage, "```", ""]
    lines += [line for paragraph in command.description.split("\n\n") for line in (plain(paragraph), "")]
    lines += [f"````{{program}} vit-vs-cnn {command.name}", "````", ""]
    words = {positional_word(parameter)[0]: settings[parameter.name] for parameter in command.positional}
    words |= {
        option_word(name) + ("" if setting.hint is bool else f" {name.upper()}"): setting
        for name, setting in command.options.items()
    }
    for word, setting in words.items():
        lines += [f"````{{option}} {word}", "", plain(describe(setting)), "````", ""]
    if command.config_settings:
        lines += ["Every setting of a config is also an option, by its dotted name: [settings](config.md).", ""]
    return "\n".join([*lines, "```console", *(f"$ {example}" for example in command.examples), "```", ""])


def configs_page() -> str:
    """Names and first lines of the configs in the package, as Markdown."""
    lines = []
    for path in sorted(find_config().parent.glob("*.yaml")):
        head = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        description = " ".join(head[: head.index("")] if "" in head else head)
        lines += [f"`{path.stem}`", f": {plain(description)}", ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text with Markdown characters escaped."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|$~" else letter for letter in " ".join(text.split()))


def name_fields(*arguments: Any) -> None:
    """Turn paragraphs that begin with ``Reference:`` or ``Differs:`` into fields, in place in the last argument."""
    lines: list[str] = arguments[-1]
    inside = False
    for number, line in enumerate(lines):
        inside = bool(line.strip()) and (inside or FIELD_NAMES.match(line) is not None)
        if inside:
            lines[number] = FIELD_NAMES.sub(r":\1: ", line) if FIELD_NAMES.match(line) else f"    {line.strip()}"


def find_undocumented(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that are missing in the reference."""
    documented = env.domains["py"].data["objects"]
    for package in PUBLIC_MODULES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            home = f"{getattr(thing, '__module__', package)}.{getattr(thing, '__qualname__', name)}"
            if not name.startswith("__") and not {
                home,
                *(f"{module_name}.{name}" for module_name in PUBLIC_MODULES),
            } & {*documented}:
                logging.getLogger(__name__).warning("%s.%s is missing in the reference", package, name)


def make_reachable(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Make a page more accessible.

    Scrolling blocks get keyboard focus, options a class, and folded cells their visible label. Arguments on several
    lines are lines instead of a list of definitions.
    """
    body = context.get("body", "")
    for html, replacement in HTML_REPLACEMENTS.items():
        body = body.replace(html, replacement)
    context["body"] = ARGUMENTS.sub(lambda match: ARGUMENT.sub(r'<span class="sig-line">\1</span>', match[1]), body)


def inline_drawings(app: Sphinx, doctree: nodes.document) -> None:
    """Replace images of ``static/drawings`` by their SVG elements, which follow the theme that the reader chooses."""
    for image in [*doctree.findall(nodes.image)]:
        path = FOLDER / Path(image["uri"]).name
        if "static/drawings/" in image["uri"] and path.exists():
            svg = path.read_text(encoding="utf-8")
            if path.stem.endswith("_zh"):
                svg = re.sub('aria-label="[^"]*"', f'aria-label="{escape(image["alt"])}"', svg)
            image.replace_self(nodes.raw("", f'<span class="drawing" tabindex="0">{svg}</span>', format="html"))


def keep_percentages(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Keep numbers and their percent sign on one line."""
    for text in [*doctree.findall(nodes.Text)]:
        if isinstance(text.parent, nodes.TextElement) and not isinstance(text.parent, VERBATIM) and " %" in text:
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) %", "\u00a0%", text)))


def describe_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give figures of notebook cells a description: their section, and the paragraph before them.

    Without one Sphinx writes the hashed name of the file.
    """
    title, paragraph = "", ""
    template = "“{}”一节的图。{}" if page.startswith("notebooks/zh/") else "Figure in the section {}. {}"
    for node in doctree.findall(lambda element: isinstance(element, nodes.title | nodes.paragraph | nodes.image)):
        if isinstance(node, nodes.title):
            title, paragraph = node.astext(), ""
        elif isinstance(node, nodes.paragraph):
            paragraph = "" if node.next_node(nodes.math) else node.astext()  # no LaTeX for screen readers
        elif isinstance(node, nodes.image) and not node.get("alt"):
            node["alt"] = textwrap.shorten(template.format(title, paragraph), 240, placeholder=" ...")


def name_sidebar(app: Sphinx, error: Exception | None) -> None:
    """Label the first of the theme's two sidebars for screen readers."""
    for page in Path(app.outdir).rglob("*.html") if error is None else ():
        html = page.read_text(encoding="utf-8")
        page.write_text(html.replace(SIDEBAR, f'{SIDEBAR[:-1]} aria-label="Site">'), encoding="utf-8")


class _Markdown(SphinxDirective):
    """Directive that inserts generated Markdown into the page."""

    optional_arguments: ClassVar[int] = 1

    def markdown(self, word: str) -> str:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        for path in ("commands.py", "config"):
            self.env.note_dependency(str(find_config().parents[1] / "vit_vs_cnn" / path))
        text = self.markdown(self.arguments[0] if self.arguments else "")
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Settings(_Markdown):
    def markdown(self, word: str) -> str:
        return settings_page(word)


class CommandHelp(_Markdown):
    def markdown(self, word: str) -> str:
        return command_page(COMMANDS[word])


class Configs(_Markdown):
    def markdown(self, word: str) -> str:
        return configs_page()


class LessonFigures(SphinxDirective):
    """Figures of ``notebooks/figures.py`` by name. Default: all except the one that trains a network."""

    optional_arguments: ClassVar[int] = 1
    final_argument_whitespace: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        if not self.config.draw_lesson:
            return []
        from notebooks.figures import FIGURES, draw_figures

        folder = Path(self.env.doctreedir) / "lesson"
        shown: list[nodes.Node] = []
        names = (
            self.arguments[0].split() if self.arguments else [name for name in FIGURES if name != TRANSFORMER_FIGURE]
        )
        for name in names:
            path = folder / f"{name}.png"
            if not path.exists():
                draw_figures(folder, [name], ("png",))
            description = " ".join((FIGURES[name].__doc__ or "").split())
            image = nodes.image(uri=f"/{relpath(path, self.env.srcdir)}", alt=description)
            caption = nodes.caption("", "", nodes.strong("", name), nodes.Text(f": {description}"))
            shown.append(nodes.figure("", image, caption))
        return shown


def link_notebook(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Put links to Colab and Binder above a notebook, if the project names a repository on GitHub."""
    repository = app.config.html_theme_options.get("source_repository", "").partition("https://github.com/")[2]
    if repository and Path(app.srcdir, f"{page}.ipynb").exists():
        colab = f"https://colab.research.google.com/github/{repository}/blob/main/{page}.ipynb"
        binder = f"https://mybinder.org/v2/gh/{repository}/main?labpath={page}.ipynb"
        links = f'<a href="{colab}">Colab</a>, <a href="{binder}">Binder</a>'
        install = f"<code>!pip install git+https://github.com/{repository}</code>"
        context["body"] = f"<p>Run it in {links}. In Colab, first run {install}.</p>\n{context['body']}"


def leave_out_bounds(_: Sphinx, function: Any, *__: Any) -> None:
    """Show the types of settings without the bounds that their annotations contain."""
    hints = getattr(function, "__annotations__", {})
    hints |= {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives and event handlers."""
    directives: dict[str, type[Directive]] = {"settings": Settings, "command": CommandHelp, "configs": Configs}
    for name, directive in (directives | {"lesson-figures": LessonFigures}).items():
        app.add_directive(name, directive)
    app.add_config_value("draw_lesson", True, "env")
    app.connect("autodoc-process-docstring", name_fields, priority=400)  # before napoleon
    app.connect("autodoc-before-process-signature", leave_out_bounds)
    app.connect("env-check-consistency", find_undocumented)
    app.connect("doctree-read", inline_drawings, priority=100)  # before images are copied
    app.connect("doctree-resolved", describe_figures)
    app.connect("doctree-resolved", keep_percentages)
    app.connect("html-page-context", make_reachable)
    app.connect("html-page-context", link_notebook)
    app.connect("build-finished", name_sidebar)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
