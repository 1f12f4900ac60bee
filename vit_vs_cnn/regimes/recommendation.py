"""What to do, in plain words: the first thing that a reader is told."""

from collections.abc import Iterator

from vit_vs_cnn.regimes.analysis import Analysis, Pair
from vit_vs_cnn.regimes.answer import at_equal_costs, called_by, headline, nothing_learned
from vit_vs_cnn.runs.design import EQUAL
from vit_vs_cnn.statistics.verdict import SEEDS_FOR_A_VERDICT
from vit_vs_cnn.told import listed


def recommendation(analysis: Analysis) -> str:
    """Which of the two networks of the answer to train, or what it would take to say.

    It names a network only where that is ahead by a verdict, at equal steps and at equal training FLOPs."""
    pair = headline(analysis)
    if pair is None:
        return "No recommendation: nothing is compared."
    comparison = pair.at_largest
    leader, follower = (called_by(name) for name in (comparison.leader, comparison.follower))
    match comparison.verdict:
        case "ahead" | "equivalent" | "no difference shown" if nothing_learned(analysis, pair):
            told = [
                f"No recommendation: with {comparison.size:,} images neither of these networks is shown to be better "
                "than always naming the most frequent class.",
                "Try a longer budget, other learning rates, or more images.",
            ]
        case "ahead":
            held, _ = at_equal_costs(pair, comparison.leader, follower)
            told = [f"Train {leader}." if held else _by_cost(pair, leader, follower), *_unsettled(analysis, pair)]
        case "equivalent":
            either = f"Either will do: {leader} and {follower} are equally good here."
            told = [either, *_behind_both(analysis, pair), *_cheaper(analysis, pair)]
        case "no difference shown":
            shown = comparison.what_would_show
            is_open = comparison.seeds < comparison.plan.seeds
            more = "run the other planned seeds" if is_open else "plan more seeds under another --name"
            if comparison.uncertain.is_of_images:
                more = "score on more images, as it is these and not the seeds that leave it open"
            unknown = f"No recommendation: there is not enough evidence that {leader} or {follower} is better."
            told = [unknown, f"To find out, {more} ({shown}).", *_behind_both(analysis, pair)]
        case "descriptive only":
            seeds = ", ".join(map(str, range(SEEDS_FOR_A_VERDICT)))
            more = f"{SEEDS_FOR_A_VERDICT} seeds allow a verdict (--protocol.seeds '[{seeds}]')."
            told = [f"No recommendation yet: {comparison.why_no_verdict}.", more]
        case _:
            told = [f"No recommendation: {comparison.why_no_verdict}."]
    return " ".join(told)


def _behind_both(analysis: Analysis, pair: Pair) -> Iterator[str]:
    """Who is behind both networks of the answer, at equal steps and at equal training FLOPs."""
    ahead_of: dict[str, set[str]] = {}
    for other in analysis.pairs:
        one = other.at_largest
        held = one.verdict == "ahead" and at_equal_costs(other, one.leader, one.follower)[0]
        if held and one.size == pair.at_largest.size:
            ahead_of.setdefault(one.follower, set()).add(one.leader)
    behind = [called_by(name) for name in analysis.contenders if ahead_of.get(name, set()) >= {pair.ahead, pair.behind}]
    if behind:
        yield f"Both are ahead of {listed(behind)}."


def _by_cost(pair: Pair, leader: str, follower: str) -> str:
    """Where a lead at equal steps does not hold at equal compute."""
    for one in pair.at_equal:
        if one.size == pair.at_largest.size and (lead := pair.lead_at_equal(one)) is not None and lead.high < 0:
            return f"Choose by what you pay for: by steps {leader} is ahead, by compute {follower}."
    return f"Train {leader} if its compute does not matter; at equal compute nothing is decided."


def _unsettled(analysis: Analysis, pair: Pair) -> Iterator[str]:
    """Which of both was still improving at that size."""
    improving = [
        called_by(c.contender)
        for c in analysis.convergence
        if c.contender in (pair.ahead, pair.behind) and c.size == pair.at_largest.size and c.state == "still improving"
    ]
    if improving:
        told = f"{' and '.join(improving)} {'was' if len(improving) == 1 else 'were'} still improving"
        yield f"But {told} when the budget ended: a longer one may change this."


def _cheaper(analysis: Analysis, pair: Pair) -> Iterator[str]:
    """Which of two equals computes less."""
    macs = {n.contender: n.macs for n in analysis.networks if n.contender in (pair.ahead, pair.behind) and n.macs}
    if len(macs) == 2 and max(macs.values()) > EQUAL * min(macs.values()):
        cheap = min(macs, key=lambda name: macs[name])
        ratio = max(macs.values()) / min(macs.values())
        yield f"For an image {called_by(cheap)} takes {ratio:.2g} times fewer multiply-accumulates."
