"""Formulas as MathML, which browsers draw without scripts, downloads or extra fonts."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

#: LaTeX commands that docutils lacks, and equivalent ones.
COMMAND_REPLACEMENTS = {r"\dots": r"\ldots", r"\middle": "", r"\bigg": "", r"\Bigg": "", r"\big": "", r"\Big": ""}


def mathml(node: nodes.Element, *, as_block: bool) -> str:
    """The formula of a node as MathML. An unreadable formula gives a warning and stays as LaTeX."""
    formula = node.astext()
    try:
        return tex2mathml(_replace_commands(formula), as_block=as_block)
    except (MathError, IndexError) as error:
        logging.getLogger(__name__).warning("%s in the formula %s", error, formula, location=node)
        return f"<code>{nodes.unescape(formula)}</code>"


def _replace_commands(formula: str) -> str:
    for command, replacement in COMMAND_REPLACEMENTS.items():
        for end in " ([{|)]}/.,\\":
            formula = formula.replace(command + end, replacement + end)
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
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
