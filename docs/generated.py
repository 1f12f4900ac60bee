"""What the reference says, from the settings that commands and configs are read by: directives of the site.

``settings`` lists the settings of a config under one name, ``command`` a command with its options, ``configs`` the
configs that come with the package, and ``lesson-figures`` draws those of the notebooks. Docstrings say ``Reference:``
and ``Differs:``, which become fields.
"""

import importlib
import re
import textwrap
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from vit_vs_cnn.commands import COMMANDS, Command, describe, metavar_of, option_word, positional_word
from vit_vs_cnn.config.experiment import dotted_settings, find_config
from vit_vs_cnn.config.reading import REQUIRED, Setting, in_words, settings_of, walk
from vit_vs_cnn.config.trainer import trainer_settings

#: The figure of the lesson that is not drawn here, as it trains a Transformer.
TRAINED = "transformer_heads"
#: What a docstring says in fields, beside those that napoleon knows.
HEADS = re.compile(r"(References?|Differs): ")

#: What Sphinx and MyST-NB write, and what keyboards, screen readers and style sheets can do more with.
BETTER = {
    "<pre>": '<pre tabindex="0">',
    '<div class="math">': '<div class="math" tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
    '<span class="pre">--': '<span class="pre option">--',
    '<summary aria-label="Toggle hidden content">': "<summary>",
}
#: How Furo opens the list of pages.
SIDEBAR = '<aside class="sidebar-drawer">'

#: Where public names are: each of them is in the reference.
PUBLIC = ("vit_vs_cnn", "vit_vs_cnn.attention", "vit_vs_cnn.models", "vit_vs_cnn.inspection")
#: Arguments of a signature that takes several lines, as Sphinx writes them, and one of them.
ARGUMENTS = re.compile(r'<dl>\s*(<dd><em class="sig-param">.*?)</dl>', re.DOTALL)
LINE = re.compile(r"<dd>(.*?)</dd>", re.DOTALL)


def every_setting() -> dict[str, Setting]:
    """The settings of a config by their dotted names; ``contenders.NAME`` stands for each contender."""
    return dotted_settings() | dict(walk(trainer_settings(), "trainer."))


def settings_page(prefix: str) -> str:
    """The settings under a name, as Markdown; those of the top level if it is empty."""
    chosen = {name: one for name, one in every_setting().items() if _stands_under(name, prefix)}
    if not chosen:
        raise ValueError(f"no setting begins with {prefix!r}")
    return "\n".join(line for name, one in chosen.items() for line in _setting(name, one))


def _stands_under(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}.") if prefix else "." not in name


def _setting(name: str, one: Setting) -> Iterator[str]:
    yield from (f"````{{confval}} {name}", f":type: {plain(in_words(one.hint))}")
    yield from ([] if one.default is REQUIRED else [f":default: {plain(_default(one.default))}"])
    yield from ("", plain(one.help), "````", "")


def _default(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(list(value) if isinstance(value, tuple) else value or {str: "''"}.get(type(value), value))


def command_page(command: Command) -> str:
    """Description of a command and of its own options, as Markdown."""
    known = settings_of(command.function)
    lines = ["```text", command.usage, "```", ""]
    lines += [line for paragraph in command.description.split("\n\n") for line in (plain(paragraph), "")]
    lines += [f"````{{program}} vit-vs-cnn {command.name}", "````", ""]
    words = {positional_word(parameter)[0]: known[parameter.name] for parameter in command.positional}
    words |= {f"{option_word(name)} {metavar_of(one)}".strip(): one for name, one in command.options.items()}
    for word, one in words.items():
        lines += [f"````{{option}} {word}", "", plain(describe(one, one.default)), "````", ""]
    if command.config_settings:
        lines += ["Every setting of a config is also an option, by its dotted name: [settings](config.md).", ""]
    return "\n".join([*lines, "```console", *(f"$ {example}" for example in command.examples), "```", ""])


def configs_page() -> str:
    """What comes with the package to be named by ``--config``, and the first lines of each, as Markdown."""
    lines = []
    for path in sorted(find_config().parent.glob("*.yaml")):
        head = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        said = " ".join(head[: head.index("")] if "" in head else head)
        lines += [f"`{path.stem}`", f": {plain(said)}", ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """A text that Markdown leaves as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|$~" else letter for letter in " ".join(text.split()))


def name_fields(*given: Any) -> None:
    """Make fields of the paragraphs that begin with one of ``HEADS``; in place, in the lines that Sphinx gives last."""
    lines: list[str] = given[-1]
    inside = False
    for number, line in enumerate(lines):
        inside = bool(line.strip()) and (inside or HEADS.match(line) is not None)
        if inside:
            lines[number] = HEADS.sub(r":\1: ", line) if HEADS.match(line) else f"    {line.strip()}"


def find_undocumented(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that no page of the reference has."""
    told = env.domains["py"].data["objects"]
    for room in PUBLIC:
        module = importlib.import_module(room)
        for name in module.__all__:
            thing = getattr(module, name)
            home = f"{getattr(thing, '__module__', room)}.{getattr(thing, '__qualname__', name)}"
            if not name.startswith("__") and not {home, *(f"{one}.{name}" for one in PUBLIC)} & {*told}:
                logging.getLogger(__name__).warning("%s.%s stands on no page of the reference", room, name)


def make_reachable(app: Sphinx, page: str, template: str, context: dict[str, Any], *_: Any) -> None:
    """Blocks that scroll take the focus of a keyboard; options are told from other code; the line that opens a folded
    cell is called what it says; arguments one a line are lines and no list of definitions.
    """
    body = context.get("body", "")
    for written, better in BETTER.items():
        body = body.replace(written, better)
    context["body"] = ARGUMENTS.sub(lambda found: LINE.sub(r'<span class="sig-line">\1</span>', found[1]), body)


def describe_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give figures of notebook cells a description: the section they are in, and the paragraph before them.

    Without one Sphinx writes the hashed name of the file.
    """
    title, paragraph = "", ""
    for node in doctree.findall(lambda one: isinstance(one, nodes.title | nodes.paragraph | nodes.image)):
        if isinstance(node, nodes.title):
            title, paragraph = node.astext(), ""
        elif isinstance(node, nodes.paragraph):
            paragraph = "" if node.next_node(nodes.math) else node.astext()  # no LaTeX for screen readers
        elif isinstance(node, nodes.image) and not node.get("alt"):
            node["alt"] = textwrap.shorten(f"Figure in the section {title}. {paragraph}", 240, placeholder=" ...")


def name_sidebar(app: Sphinx, error: Exception | None) -> None:
    """Give the first of the theme's two sidebars a name, by which a screen reader tells them apart."""
    for page in Path(app.outdir).rglob("*.html") if error is None else ():
        written = page.read_text(encoding="utf-8")
        page.write_text(written.replace(SIDEBAR, f'{SIDEBAR[:-1]} aria-label="Site">'), encoding="utf-8")


class _Markdown(SphinxDirective):
    """What a function says, read as if it stood on the page."""

    optional_arguments: ClassVar[int] = 1

    def told(self, word: str) -> str:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        for path in ("commands.py", "config"):
            self.env.note_dependency(str(find_config().parents[1] / "vit_vs_cnn" / path))
        text = self.told(self.arguments[0] if self.arguments else "")
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Settings(_Markdown):
    def told(self, word: str) -> str:
        return settings_page(word)


class CommandHelp(_Markdown):
    def told(self, word: str) -> str:
        return command_page(COMMANDS[word])


class Configs(_Markdown):
    def told(self, word: str) -> str:
        return configs_page()


class LessonFigures(SphinxDirective):
    """The figures of ``notebooks/figures.py`` that are named; every one but that which trains a network if none is."""

    optional_arguments: ClassVar[int] = 1
    final_argument_whitespace: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        if not self.config.draw_lesson:
            return []
        from notebooks.figures import FIGURES, draw_figures

        folder = Path(self.env.doctreedir) / "lesson"
        shown: list[nodes.Node] = []
        named = self.arguments[0].split() if self.arguments else [name for name in FIGURES if name != TRAINED]
        for name in named:
            path = folder / f"{name}.png"
            if not path.exists():
                draw_figures(folder, [name], ("png",))
            said = " ".join((FIGURES[name].__doc__ or "").split())
            image = nodes.image(uri=f"/{relpath(path, self.env.srcdir)}", alt=said)
            caption = nodes.caption("", "", nodes.strong("", name), nodes.Text(f": {said}"))
            shown.append(nodes.figure("", image, caption))
        return shown


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directives known."""
    made: dict[str, type[Directive]] = {"settings": Settings, "command": CommandHelp, "configs": Configs}
    for name, directive in (made | {"lesson-figures": LessonFigures}).items():
        app.add_directive(name, directive)
    app.add_config_value("draw_lesson", True, "env")
    app.connect("autodoc-process-docstring", name_fields, priority=400)  # before napoleon
    app.connect("env-check-consistency", find_undocumented)
    app.connect("doctree-resolved", describe_figures)
    app.connect("html-page-context", make_reachable)
    app.connect("build-finished", name_sidebar)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
