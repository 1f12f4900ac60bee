"""Formulas as MathML, which browsers draw by themselves: the site needs no network and no font of its own."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

#: Commands that docutils lacks, and what says the same.
INSTEAD = {r"\dots": r"\ldots", r"\middle": "", r"\bigg": "", r"\Bigg": "", r"\big": "", r"\Big": ""}


def mathml(node: nodes.Element, *, as_block: bool) -> str:
    """The formula of a node; one that cannot be read is a warning, and stays as it is written."""
    written = node.astext()
    try:
        return tex2mathml(_known(written), as_block=as_block)
    except (MathError, IndexError) as error:
        logging.getLogger(__name__).warning("%s in the formula %s", error, written, location=node)
        return f"<code>{nodes.unescape(written)}</code>"


def _known(formula: str) -> str:
    for command, other in INSTEAD.items():
        for end in " ([{|)]}/.,\\":
            formula = formula.replace(command + end, other + end)
    return formula


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def split_formula(formula: str) -> list[str]:
    """Split a formula where wide space separates its parts, so that a narrow window can put them on several lines."""
    return [formula] if r"\begin" in formula else [part.strip() for part in formula.split(r"\qquad") if part.strip()]


def _block(writer: Any, node: nodes.math_block) -> None:
    parts = "".join(mathml(nodes.math_block("", part), as_block=True) for part in split_formula(node.astext()))
    writer.body.append(writer.starttag(node, "div", CLASS="math") + parts + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the renderer known as ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
