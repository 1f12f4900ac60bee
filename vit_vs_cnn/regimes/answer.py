"""The answer of an experiment, in two sentences."""

from collections.abc import Mapping

from vit_vs_cnn.regimes.analysis import Analysis, Pair
from vit_vs_cnn.regimes.crossing import Crossing
from vit_vs_cnn.regimes.multiplier import Multiplier
from vit_vs_cnn.statistics.estimate import Estimate
from vit_vs_cnn.statistics.verdict import SEEDS_FOR_A_VERDICT

#: How papers write what contenders are often called.
NAMES = {"vit": "ViT", "cnn": "CNN", "resnet": "ResNet", "cct": "CCT", "deit": "DeiT", "mlp": "MLP"}


def answer(analysis: Analysis, *, names: Mapping[str, str] | None = None, own_images: bool = False) -> str:
    """Who is ahead with all the images and by how much; and whether more data would change that.

    With more than two contenders it is the best one against the next. A crossing is named only where its whole
    interval lies within the sizes that were run.

    Arguments:
        names: how to call the contenders, where not by ``NAMES`` or their own names.
        own_images: whether the images are the reader's.
    """
    pair = headline(analysis)
    if pair is None:
        return _alone(analysis, names)
    called = {name: _called(name, names) for name in (pair.ahead, pair.behind)}
    return f"{_first_sentence(analysis, pair, called, own_images)} {_second_sentence(pair, called)}"


def display_name(contender: str, names: Mapping[str, str] | None = None) -> str:
    """What a reader calls a contender: as told, as papers do, or by its own name."""
    return (names or {}).get(contender) or NAMES.get(contender.lower(), contender)


def headline(analysis: Analysis) -> Pair | None:
    """The best contender at the largest size, and the one next to it; None if nothing can be compared."""
    largest = max((pair.at_largest.size for pair in analysis.pairs), default=0)
    at_largest = {c.contender: c.points[-1].accuracy.value for c in analysis.curves if c.points[-1].size == largest}
    ranked = sorted(at_largest, key=lambda name: -at_largest[name])
    candidates = [pair for pair in analysis.pairs if pair.at_largest.size == largest]
    return min(candidates, key=lambda pair: sorted((ranked.index(pair.ahead), ranked.index(pair.behind))), default=None)


def _alone(analysis: Analysis, names: Mapping[str, str] | None) -> str:
    curve = analysis.curves[0]
    point = curve.points[-1]
    value, low, high = (100 * a for a in (point.accuracy.value, point.accuracy.low, point.accuracy.high))
    reached = (
        f"With {point.size:,} images {_called(curve.contender, names)} reaches {value:.1f} % ({low:.1f} to {high:.1f})."
    )
    why = "no two contenders share a size and a seed" if len(analysis.contenders) > 1 else "there is one contender"
    return f"{reached} Nothing is compared: {why}."


def _first_sentence(analysis: Analysis, pair: Pair, called: Mapping[str, str], own_images: bool) -> str:
    comparison = pair.at_largest
    ahead, behind = called[comparison.leader], called[comparison.follower]
    place = f"With {'your ' if own_images else ''}{comparison.size:,} images"
    lead, interval = f"{100 * comparison.lead.value:.1f} points", _points(comparison.lead)
    if comparison.verdict == "no difference shown":
        return f"{place} no difference is shown: {ahead} is {lead} above {behind} ({interval})."
    if comparison.verdict != "ahead":
        return (
            f"{place} {ahead} came out {lead} above {behind} ({interval}), which is no verdict: "
            f"{comparison.why_no_verdict}."
        )
    if len(analysis.contenders) > 2:
        return (
            f"{place} {ahead} is ahead, by {lead} over {behind}, the next of {len(analysis.contenders)} ({interval})."
        )
    return f"{place} {ahead} is ahead by {lead} ({interval})."


def _second_sentence(pair: Pair, called: Mapping[str, str]) -> str:
    if not pair.crossings or pair.matched is None:
        return "Only one size was run, so nothing is said of what more images would change."
    crossing, matched = pair.crossings[0], pair.matched
    largest = crossing.range[1]
    overtaker, overtaken = called[crossing.overtaker], called[crossing.overtaken]
    if crossing.is_shown:
        few = min(comparison.seeds for comparison in pair.comparisons) < SEEDS_FOR_A_VERDICT
        place = f"at about {_rounded(crossing.size)} images ({_rounded(crossing.low)} to {_rounded(crossing.high)})"
        return f"{'In these runs ' + overtaker if few else _capital(overtaker)} overtakes {overtaken} {place}."
    if pair.at_largest.lead.low <= 0:
        return _open_sentence(crossing, overtaker, overtaken)
    if crossing.state == "measured":  # ahead at the end, but from where on is not settled
        return (
            f"{_capital(overtaker)} is ahead from about {_rounded(crossing.size)} images on{_at_most(crossing)}; "
            "whether the order is another with fewer is not shown."
        )
    return f"No crossing up to {largest:,}; {_needed(matched, called, largest)}."


def _open_sentence(crossing: Crossing, overtaker: str, overtaken: str) -> str:
    share = f"{100 * crossing.probability_in_range:.0f} %"
    return (
        f"Whether {overtaker} overtakes {overtaken} up to {crossing.range[1]:,} images is open: it does in {share} of "
        "the resamples."
    )


def _needed(multiplier: Multiplier, called: Mapping[str, str], largest: int) -> str:
    behind, ahead = called[multiplier.behind], called[multiplier.ahead]
    if multiplier.value is None:
        return f"{behind} needs more than {multiplier.more_than:.2g} times the data, beyond what was measured"
    low = "less than 1" if multiplier.low is None else f"{multiplier.low:.2g}"
    high = f"more than {multiplier.more_than:.2g}" if multiplier.high is None else f"{multiplier.high:.2g}"
    fewer = f"its {largest:,} images do what about {_rounded(multiplier.size)} do for {ahead}"
    return f"{behind} needs about {multiplier.value:.2g} times the data ({low} to {high}): {fewer}"


def _at_most(crossing: Crossing) -> str:
    return "" if crossing.high is None else f" (at most {_rounded(crossing.high)})"


def _points(lead: Estimate) -> str:
    return f"{100 * lead.low:.1f} to {100 * lead.high:.1f}"


def _rounded(size: float | None) -> str:
    """Two digits are all that a crossing is known to."""
    assert size is not None
    return f"{float(f'{size:.2g}'):,.0f}"


def _called(name: str, names: Mapping[str, str] | None) -> str:
    return f"the {display_name(name, names)}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
