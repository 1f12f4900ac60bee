"""The answer of an experiment, in two sentences."""

from collections.abc import Callable, Mapping

from vit_vs_cnn.regimes.analysis import Analysis, Pair
from vit_vs_cnn.regimes.budgets import COST_NAMES, LASTING
from vit_vs_cnn.regimes.convergence import LITTLE
from vit_vs_cnn.regimes.crossing import Crossing
from vit_vs_cnn.regimes.curves import CurvePoint
from vit_vs_cnn.regimes.lottery import has_failed, not_ruled_out
from vit_vs_cnn.regimes.multiplier import WHY_NONE, Multiplier
from vit_vs_cnn.regimes.networks import introduction
from vit_vs_cnn.runs.result import StartKind
from vit_vs_cnn.statistics.estimate import p_text, points_range
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT
from vit_vs_cnn.statistics.verdict import margin_text

#: How papers write what contenders are often called.
NAMES = {"vit": "ViT", "cnn": "CNN", "resnet": "ResNet", "cct": "CCT", "deit": "DeiT", "mlp": "MLP"}


def answer(analysis: Analysis, *, own_images: bool = False) -> str:
    """What was compared; who is ahead with all the images and by how much; and whether more data would change that.

    With more than two contenders it is the best one against the next. A crossing is named only where its whole
    interval lies within the sizes that were run, a data multiplier only where the budget does not make it.

    Arguments:
        own_images: whether the images are the reader's.
    """
    pair = headline(analysis)
    if pair is None:
        return _alone(analysis)
    called = {name: called_by(name) for name in (pair.ahead, pair.behind)}
    plain = {name: display_name(name) for name in called}
    networks = {network.contender: network for network in analysis.networks}
    compared = introduction(networks[pair.ahead], networks[pair.behind], plain)
    first = _first_sentence(analysis, pair, called, own_images)
    sentences = [f"{compared}: {first[0].lower()}{first[1:]}"]
    sentences += [*_budgets_sentence(pair), _second_sentence(analysis, pair, called)]
    return " ".join([*sentences, *pretraining_sentences(analysis)])


def display_name(contender: str) -> str:
    """What a reader calls a contender: as papers do, or by its own name."""
    return NAMES.get(contender.lower(), contender)


def headline(analysis: Analysis) -> Pair | None:
    """The best contender at the largest size, and the one next to it; None if nothing can be compared.

    Where some are pretrained, the one next to it is of another model: which network to take is what is asked.
    """
    largest = max((pair.at_largest.size for pair in analysis.pairs), default=0)
    at_largest = {c.contender: p.accuracy.value for c in analysis.curves for p in c.points if p.size == largest}
    ranked = sorted(at_largest, key=lambda name: -at_largest[name])
    candidates = [pair for pair in analysis.pairs if pair.at_largest.size == largest]
    if len(analysis.start_kinds) > 1:
        model = {network.contender: network.architecture for network in analysis.networks}
        candidates = [pair for pair in candidates if model[pair.ahead] != model[pair.behind]] or candidates
    return min(candidates, key=lambda pair: sorted((ranked.index(pair.ahead), ranked.index(pair.behind))), default=None)


def _alone(analysis: Analysis) -> str:
    curve = analysis.curves[0]
    point = curve.points[-1]
    value, low, high = (100 * a for a in (point.accuracy.value, point.accuracy.low, point.accuracy.high))
    called = called_by(curve.contender)
    reached = f"With {point.size:,} images {called} reaches {value:.1f} % ({low:.1f} to {high:.1f})."
    why = "no two contenders share a size and a seed" if len(analysis.contenders) > 1 else "there is one contender"
    return f"{reached} Nothing is compared: {why}."


def _first_sentence(analysis: Analysis, pair: Pair, called: Mapping[str, str], own_images: bool) -> str:
    comparison = pair.at_largest
    ahead, behind = called[comparison.leader], called[comparison.follower]
    place = f"With {'your ' if own_images else ''}{comparison.size:,} images"
    lead, interval = f"{100 * comparison.lead.value:.1f} points", points_range(comparison.lead)
    if comparison.verdict == "no difference shown":
        shown = comparison.what_would_show
        if comparison.lead.low > 0:
            interval += (
                f", by itself; corrected over {comparison.family} comparisons p = {p_text(comparison.adjusted_p_value)}"
            )
        return f"{place} no difference is shown: {comparison.apart(ahead, behind)} ({interval}); {shown}."
    if comparison.verdict == "equivalent":
        within = margin_text(comparison.margin)
        return f"{place} {ahead} and {behind} are equivalent within {within}: they are {lead} apart ({interval})."
    if comparison.verdict != "ahead":
        return (
            f"{place} {ahead} came out {lead} above {behind} ({interval}), which is no verdict: "
            f"{comparison.why_no_verdict}."
        )
    next_of = f", the next of {len(analysis.contenders)}" if len(analysis.contenders) > 2 else ""
    held, costs = at_equal_costs(pair, comparison.leader, behind)
    if not held:
        return f"{place} {ahead} came out {lead} above {behind}{next_of} ({interval}){costs}."
    if next_of:
        return f"{place} {ahead} is ahead, by {lead} over {behind}{next_of} ({interval}){costs}."
    return f"{place} {ahead} is ahead by {lead} ({interval}){costs}."


def at_equal_costs(pair: Pair, leader: str, behind: str) -> tuple[bool, str]:
    """Whether a lead that is shown holds at equal steps and at equal training FLOPs, and the words for that.

    Who leads with less of a cost leads with equally much, too: more training would not take it back.
    """
    uneven = [one for one in pair.at_equal if one.size == pair.at_largest.size and one.is_uneven]
    if not uneven:
        return True, ""
    alike = " and ".join(COST_NAMES[cost] for cost in LASTING if cost not in {one.cost for one in uneven})
    at_equal, found = f" at equal {alike}" if alike else "", []
    for one in uneven:
        name, ratio = COST_NAMES[one.cost], one.ratio if pair.ahead == leader else 1 / one.ratio
        if (lead := pair.lead_at_equal(one)) is not None:
            told = f"{100 * lead.value:.1f} points ({points_range(lead)})"
            if lead.low <= 0:
                return False, f"{at_equal}, but no lead is shown at equal {name}: {told}; that is no verdict"
            found.append(f" and by {told} at equal {name}")
        elif ratio > 1:
            what = f"with {ratio:.2g} times the {name}"
            return False, f"{at_equal}, {what}, which is no verdict: at equal {name} nothing is known"
        else:
            found.append(f", and {behind} had {1 / ratio:.2g} times the {name}")
    return True, at_equal + "".join(found)


def pretraining_sentences(analysis: Analysis) -> list[str]:
    """What pretraining was worth to the contenders of the answer, and whether it changes who is ahead."""
    pair = headline(analysis)
    if pair is None or len(analysis.start_kinds) < 2:
        return []
    found = []
    for name in (pair.ahead, pair.behind):
        told = [one for one in analysis.worth if one.pretrained == name and one.more_than is not None]
        if told:
            best = max(told, key=lambda one: ((one.more_than or 0) / one.size, -one.size))
            verb = "does better than" if pair.at_largest.seeds >= SEEDS_FOR_A_VERDICT else "came out above"
            found.append(
                f"With {best.size:,} images {called_by(name)} {verb} "
                f"{called_by(best.scratch)}, from scratch, with {best.more_than:,}."
            )
    return [*found, *_order_by_start(analysis)]


def _order_by_start(analysis: Analysis) -> list[str]:
    """Who is ahead at the largest size among networks whose trainings began in the same way, in one sentence."""
    told = []
    for kind, pair in analysis.pairs_by_start():
        one = pair.at_largest
        ahead = f"{called_by(one.leader)} is ahead" if one.verdict == "ahead" else one.verdict
        told.append(f"{'as a ' * (kind is StartKind.LINEAR_PROBE)}{kind}: {ahead}")
    return [f"At the largest size, {'; '.join(told)}."] if len(told) > 1 else []


def _budgets_sentence(pair: Pair) -> list[str]:
    """What more training changed at the largest size."""
    gaps = [gap for gap in pair.gaps if gap.size == pair.at_largest.size]
    if len(gaps) < 2:
        return []
    first, last = (100 * gap.difference.value for gap in (gaps[0], gaps[-1]))
    return [f"With {gaps[0].budget} the difference was {first:+.1f} points, with {gaps[-1].budget} it is {last:+.1f}."]


def _second_sentence(analysis: Analysis, pair: Pair, called: Mapping[str, str]) -> str:
    if not pair.crossings:
        return "Only one size was run, so nothing is said of what more images would change."
    crossing = pair.crossings[0]
    largest = crossing.range[1]
    overtaker, overtaken = called[crossing.overtaker], called[crossing.overtaken]
    if crossing.is_shown:
        few = min(comparison.seeds for comparison in pair.comparisons) < SEEDS_FOR_A_VERDICT
        place = f"at about {_rounded(crossing.size)} images ({_rounded(crossing.low)} to {_rounded(crossing.high)})"
        return f"{'In these runs ' + overtaker if few else _capital(overtaker)} overtakes {overtaken} {place}."
    if pair.at_largest.lead.low <= 0:
        return _open_sentence(crossing, overtaker, overtaken)
    if crossing.state == "measured":  # ahead at the end, but from where on is not settled
        at_most = "" if crossing.high is None else f" (at most {_rounded(crossing.high)})"
        return (
            f"{_capital(overtaker)} is ahead from about {_rounded(crossing.size)} images on{at_most}; "
            "whether the order is another with fewer is not shown."
        )
    return f"No crossing up to {largest:,}; {multiplier_text(analysis, pair, called)}."


def _open_sentence(crossing: Crossing, overtaker: str, overtaken: str) -> str:
    share = f"{100 * crossing.probability_in_range:.0f} %"
    return (
        f"Whether {overtaker} overtakes {overtaken} up to {crossing.range[1]:,} images is open: it does in {share} of "
        "the resamples."
    )


def failures_line(analysis: Analysis) -> str | None:
    """Which failure rates the seeds behind the answer leave open; None without a verdict, or where some run failed.

    A failed run is told of among the warnings; it takes the images' classes to know of one.
    """
    pair = headline(analysis)
    if pair is None or analysis.majority is None or pair.at_largest.why_no_verdict is not None:
        return None
    if any(failed_runs(analysis, pair)):
        return None
    seeds = pair.at_largest.seeds
    above = f"{100 * not_ruled_out(seeds):.0f} %"
    failed = f"None of the runs with {pair.at_largest.size:,} images failed"
    return f"{failed}; {seeds} seeds of each rule out only failure rates above {above}."


def failed_runs(analysis: Analysis, pair: Pair) -> list[bool]:
    """Of each run of a pair at its largest size, whether it ended within chance; none if chance is unknown."""
    if analysis.majority is None:
        return []
    points = _largest_points(analysis, pair)
    return [has_failed(a, analysis.majority, analysis.test_images) for point in points for a in point.by_seed]


def nothing_learned(analysis: Analysis, pair: Pair) -> bool:
    """Whether the mean accuracy of neither of a pair, at its largest size, is above what chance gives."""
    if analysis.majority is None:
        return False
    means = [point.accuracy.value for point in _largest_points(analysis, pair)]
    return all(has_failed(mean, analysis.majority, analysis.test_images) for mean in means)


def _largest_points(analysis: Analysis, pair: Pair) -> list[CurvePoint]:
    size, names = pair.at_largest.size, (pair.ahead, pair.behind)
    return [p for c in analysis.curves if c.contender in names for p in c.points if p.size == size]


def multiplier_line(analysis: Analysis, name: Callable[[str], str] = str) -> str | None:
    """The data multiplier of the pair that the answer speaks of, or why there is none; None where one size was run.

    ``name`` says what contenders are called.
    """
    pair = headline(analysis)
    if pair is None or not pair.multipliers:
        return None
    called = {contender: name(contender) for contender in (pair.ahead, pair.behind)}
    return f"data multiplier: {multiplier_text(analysis, pair, called)}"


def multiplier_text(analysis: Analysis, pair: Pair, called: Mapping[str, str]) -> str:
    """The data multiplier with the n it is said for: the largest at which it was measured. Or why there is none."""
    found = [m for m in pair.multipliers if m.method == "interpolation"]
    if measured := [m for m in found if m.value is not None]:
        return _times(measured[-1], called)
    if beyond := [m for m in found if m.state == "censored above"]:
        most = f"more than {beyond[0].more_than:.2g} times as many, beyond what was measured"
        return f"{_for_what(beyond[0], called)} {most}"
    states = {m.state for m in found}
    why = next((state for state in WHY_NONE if state in states), None)
    if why is None:
        return "no multiplier within the sizes that were run"
    return WHY_NONE[why].format(behind=called[pair.behind]) + _what_would_tell(analysis, pair, called, why)


def _times(m: Multiplier, called: Mapping[str, str]) -> str:
    low = f"less than {m.less_than:.2g}" if m.low is None else f"{m.low:.2g}"
    high = f"more than {m.more_than:.2g}" if m.high is None else f"{m.high:.2g}"
    return f"{_for_what(m, called)} about {m.value:.2g} times as many ({low} to {high})"


def _for_what(m: Multiplier, called: Mapping[str, str]) -> str:
    return f"for what {called[m.ahead]} does with {m.size:,.0f} images {called[m.behind]} needs"


def _what_would_tell(analysis: Analysis, pair: Pair, called: Mapping[str, str], why: str) -> str:
    """Which runs stand in the way, and what budget would settle it; nothing where the budget does not."""
    wanted = {"budget-limited": "still improving", "budget not known": "not known"}.get(why)
    of_pair = [c for c in analysis.convergence if c.contender in called and c.state == wanted]
    if not of_pair:
        return ""
    most = max(of_pair, key=lambda c: (c.gain is None, c.gain.value if c.gain else 0.0, c.size))
    unit = next(n.budget_unit for n in analysis.networks if n.contender == most.contender)
    twice = f"twice the steps (--protocol.budget.steps {2 * most.steps})" if unit == "steps" else "twice the budget"
    if most.gain is None:
        return f" ({most.reason}); the same runs with validation images, and with {twice}, would tell"
    if wanted == "not known":
        return f" ({most.reason}); more seeds or a larger data.validation_fraction would tell"
    rule = f"would settle it if its last quarter gives less than {100 * LITTLE:g} points"
    gained = f"{100 * most.gain.value:.1f} points (standard error {100 * most.gain.error:.1f})"
    return (
        f", as {called[most.contender]} still gained {gained} in its last quarter at n = {most.size:,}; {twice} {rule}"
    )


def _rounded(size: float | None) -> str:
    """Two digits are all that a crossing is known to."""
    assert size is not None
    return f"{float(f'{size:.2g}'):,.0f}"


def called_by(name: str) -> str:
    """``the ResNet``: a contender in a sentence."""
    return f"the {display_name(name)}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
