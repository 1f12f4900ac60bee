"""The analysis plan: what is fixed before results exist, so that results cannot influence how they are analysed."""

import dataclasses
import itertools
import json
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.console import join_names
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import write_text
from vit_vs_cnn.models.presets import TIMM_PREFIX
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind
from vit_vs_cnn.statistics.pair_comparison import MIN_SEEDS_FOR_CONCLUSION, ComparisonRules
from vit_vs_cnn.statistics.significance import INTERIM_ERROR_RATES
from vit_vs_cnn.typed_values import build

FILE_NAME = "analysis_plan.json"
#: Networks whose multiply-accumulates differ by no more count as equally large.
MAX_EQUAL_MACS_RATIO = 1.25


#: Parts of the plan whose change after the first results is a deviation: fields of ``AnalysisPlan`` in words.
DEVIATIONS = {
    "seeds": "the planned seeds",
    "size": "the training-set size of the primary comparison",
    "pair": "the models of the primary comparison",
    "equivalence_margin": "the margin of equivalence",
    "budget": "the longest budget",
    "pairs": "the pairs that are compared",
}


@dataclass(frozen=True)
class Deviation:
    """A change of the plan after results existed. ``kind`` is one of ``DEVIATIONS``."""

    kind: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{DEVIATIONS[self.kind]} changed from {self.before} to {self.after} after results existed"


@dataclass(frozen=True)
class AnalysisPlan:
    """The plan, fixed before results can be analysed, and the changes that were made later.

    Results can be analysed once three seeds of any model are finished.

    Arguments:
        size, pair: of the primary comparison; None if there is only one model.
        equivalence_margin: models that differ by less, in percentage points, are equivalent.
        budget: the longest one, by which models are compared; empty where older versions did not record it.
        pairs: pairs of models that are compared; None for all.
        second_pair: another pair that is compared at ``size``, at 1 % and not adjusted for multiple comparisons. With
            ``pair`` at 5 %, the probability of a false claim in either is at most 6 %, if both hold. It consists of
            linear probes, which are compared before ``pair`` is trained, or of models that were added later.
        added_seeds: seeds that were added after the first analysis was possible, one entry for each addition; an
            empty first entry if another experiment made the second analysis.
        deviations: other changes that were made later. They are reported, and conclusions follow the first plan.
        missing_weights: models that were left out because their pretrained weights could not be loaded, by model.
        earlier_analyses: experiments with earlier analyses of the primary comparison in the test-set log; None if they
            are not counted, and in the file of the plan.
    """

    seeds: tuple[int, ...]
    models: tuple[str, ...]
    train_sizes: tuple[int, ...]
    size: int | None
    pair: tuple[str, str] | None
    equivalence_margin: float
    budget: str = ""
    pairs: tuple[tuple[str, str], ...] | None = None
    second_pair: tuple[str, str] | None = None
    added_seeds: tuple[tuple[int, ...], ...] = ()
    deviations: tuple[Deviation, ...] = ()
    missing_weights: tuple[tuple[str, str], ...] = ()
    earlier_analyses: tuple[str, ...] | None = None

    @property
    def analysed_seeds(self) -> tuple[int, ...]:
        """Seeds that conclusions are drawn from: those of the first analysis, and those that were added once."""
        return (*self.seeds, *itertools.chain(*self.added_seeds[: len(INTERIM_ERROR_RATES) - 1]))

    @property
    def has_second_analysis(self) -> bool:
        """True if conclusions are drawn from added seeds, too."""
        return len(self.analysed_seeds) > len(self.seeds)

    @property
    def is_exploratory(self) -> bool:
        """True if all analyses of its question that allow conclusions were made before."""
        return len(self.earlier_analyses or ()) >= len(INTERIM_ERROR_RATES)

    @property
    def earlier_analyses_text(self) -> str:
        """Clause with the experiments of earlier analyses."""
        names = list(dict.fromkeys(self.earlier_analyses or ()))
        subject = f"the experiment{'s' * (len(names) > 1)} {join_names(names)}"
        return f"{subject} compared these architectures on these test images before"

    @property
    def changed_budget(self) -> Deviation | None:
        """A change of the longest budget, after which there are no conclusions; None if there was none."""
        return next((deviation for deviation in self.deviations if deviation.kind == "budget"), None)

    @property
    def deviation_texts(self) -> list[str]:
        """One sentence for each deviation, for earlier analyses, and for seeds that were added."""
        texts = []
        if self.is_exploratory:
            texts.append(f"Exploratory: {self.earlier_analyses_text}. There are no conclusions.")
        elif self.earlier_analyses and not self.has_second_analysis:
            texts.append(f"T{self.earlier_analyses_text[1:]}. This analysis is made at 1 %, with 99 % intervals.")
        for deviation in self.deviations:
            is_budget = deviation == self.changed_budget
            rest = "There are no conclusions." if is_budget else "Conclusions follow the first plan."
            texts.append(f"Exploratory: {deviation.text}. {rest}")
        if self.has_second_analysis:
            texts.append(
                f"{_seeds_were(len(self.added_seeds[0]))} added after the first analysis. The second analysis is made "
                "at 1 %, with 99 % intervals. The probability of a false claim in either is at most 6 %, if both "
                "levels hold."
            )
        if unused := list(itertools.chain(*self.added_seeds[len(INTERIM_ERROR_RATES) - 1 :])):
            unused_seeds = ", ".join(map(str, unused))
            count = _seeds_were(len(unused))
            texts.append(f"Exploratory: {count} added after the second analysis and not analysed ({unused_seeds}).")
        return texts

    def compares(self, first: str, second: str) -> bool:
        return self.pairs is None or {first, second} in [{*pair} for pair in self.pairs]

    def is_primary(self, first: str, second: str, size: int) -> bool:
        return self.pair is not None and {first, second} == {*self.pair} and size == self.size

    def is_second(self, first: str, second: str, size: int) -> bool:
        return self.second_pair is not None and {first, second} == {*self.second_pair} and size == self.size

    @property
    def secondary_count(self) -> int:
        """Number of planned comparisons that are adjusted for each other."""
        pairs = [pair for pair in itertools.combinations(sorted({*self.models}), 2) if self.compares(*pair)]
        comparisons = [(*pair, size) for pair in pairs for size in {*self.train_sizes}]
        return sum(not self.is_primary(*one) and not self.is_second(*one) for one in comparisons)

    def find_analysis(
        self, seeds: Collection[int], *, is_primary: bool, is_second: bool = False, caveat: Caveat | None
    ) -> tuple[tuple[int, ...], ComparisonRules]:
        """Seeds and rules of the latest analysis whose seeds are all finished.

        If not even the first analysis has all its seeds, the rules contain a caveat that allows no conclusion.
        """
        if self.changed_budget is not None:
            caveat = Caveat(CaveatKind.UNPLANNED_BUDGET, self.changed_budget.text)
        elif self.is_exploratory and caveat is None:
            caveat = Caveat(CaveatKind.EARLIER_ANALYSES, self.earlier_analyses_text)
        chosen, error_rate = self.seeds, INTERIM_ERROR_RATES[1 if self.earlier_analyses else 0]
        if self.has_second_analysis and {*self.analysed_seeds} <= {*seeds}:
            chosen, error_rate = self.analysed_seeds, INTERIM_ERROR_RATES[1]
        finished = tuple(seed for seed in chosen if seed in seeds)
        if not finished:
            unplanned = Caveat(CaveatKind.UNPLANNED_SEEDS, "none of their seeds was planned")
            finished, caveat = tuple(sorted(seeds)), caveat or unplanned
        elif len(finished) < len(chosen) >= MIN_SEEDS_FOR_CONCLUSION and caveat is None:
            is_or_are = "is" if len(finished) == 1 else "are"
            missing = f"{len(finished)} of the {len(chosen)} planned seeds {is_or_are} finished"
            caveat = Caveat(CaveatKind.UNFINISHED, missing)
        if is_second:
            error_rate = INTERIM_ERROR_RATES[1]
        return finished, ComparisonRules(self.equivalence_margin / 100, error_rate, caveat, is_primary, is_second)


def make_analysis_plan(
    experiment: Experiment, sizes: Mapping[int | str, int], missing_weights: Mapping[str, str] | None = None
) -> AnalysisPlan:
    protocol, pairs = experiment.protocol, experiment.protocol.pairs
    names = pairs[0] if pairs else list(experiment.models)[:2]
    probes = {name for name, model in experiment.models.items() if model.finetune.head}
    second = next((pair for pair in pairs or [] if experiment.minutes and {*pair} <= probes), None)
    return AnalysisPlan(
        seeds=tuple(protocol.seeds),
        models=tuple(experiment.models),
        train_sizes=tuple(sorted({*sizes.values()})),
        size=max(sizes.values()) if len(names) > 1 else None,
        pair=(names[0], names[1]) if len(names) > 1 else None,
        equivalence_margin=protocol.equivalence_margin,
        budget=protocol.budget.largest.text,
        pairs=None if pairs is None else tuple((pair[0], pair[1]) for pair in pairs),
        second_pair=None if second in (None, names) else (second[0], second[1]),
        missing_weights=tuple((missing_weights or {}).items()),
    )


def missing_weights_texts(models: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences on pretrained models that were left out, and on commands that get their weights."""
    names = list(dict.fromkeys(models.values()))
    lines = [f"hf download {name} model.safetensors" for name in names if name.startswith(TIMM_PREFIX)]
    if lines:
        place = "the Hugging Face cache (HF_HOME)"
        lines.insert(0, f"To download them into {place}, run this while online, then repeat your command:")
        options = [f"--models.{model} {name}=FILE" for model, name in models.items() if name.startswith(TIMM_PREFIX)]
        lines.append(f"To load weights from files: {' '.join(options)}")
    return (
        "Pretrained models are missing, because their weights could not be loaded. A pretrained model would probably "
        "be better than one trained from scratch.",
        f"Missing are the weights of {join_names(names)}.",
        *lines,
    )


def register_plan(new: AnalysisPlan, folder: Path, known: Sequence[RunResult] = ()) -> AnalysisPlan:
    """Record the plan of an experiment, or keep the recorded one, with the changes, if results could be analysed."""
    if (old := find_binding_plan(folder, known)) is not None:
        new = _with_changes(old, new)
    write_text(folder / FILE_NAME, json.dumps(dataclasses.asdict(new), indent=1) + "\n")
    return new


def find_binding_plan(folder: Path, known: Sequence[RunResult] = ()) -> AnalysisPlan | None:
    """The recorded plan of an experiment if three planned seeds of a model are finished at one size and budget."""
    if (plan := read_plan(folder)) is None:
        return None
    with warnings.catch_warnings(action="ignore"):  # a damaged result is reported when its run is reached
        finished = read_finished_results(folder, some=False, known=known).values()
    places = [(result.model, result.train_size, result.budget) for result in finished if result.seed in plan.seeds]
    is_analysable = max(Counter(places).values(), default=0) >= MIN_SEEDS_FOR_CONCLUSION
    return plan if is_analysable else None


def _with_changes(old: AnalysisPlan, new: AnalysisPlan) -> AnalysisPlan:
    old_seeds = {*old.seeds, *itertools.chain(*old.added_seeds)}
    added = tuple(seed for seed in new.seeds if seed not in old_seeds)
    old = _with_added_models(old, new)
    changes = [
        Deviation(kind, _text(getattr(old, kind)), _text(getattr(new, kind)))
        for kind in DEVIATIONS
        if getattr(old, kind) != ""
        and _without_order(getattr(old, kind)) != _without_order(getattr(new, kind))
        and not (kind == "seeds" and {*old.seeds} <= {*new.seeds})
        and not (kind == "pair" and new.pair == old.second_pair)
    ]
    return dataclasses.replace(
        old,
        models=new.models,
        train_sizes=new.train_sizes,
        budget=new.budget,
        missing_weights=new.missing_weights,
        added_seeds=(*old.added_seeds, *([added] if added else [])),
        deviations=tuple(dict.fromkeys([*old.deviations, *changes])),
    )


def _with_added_models(old: AnalysisPlan, new: AnalysisPlan) -> AnalysisPlan:
    """A plan with the pairs of models that were added since. The first of them may become the second pair."""
    if old.pairs is None or new.pairs is None or not {*old.pairs} < {*new.pairs}:
        return old
    added = [pair for pair in new.pairs if pair not in old.pairs]
    if not all({*pair} - {*old.models} for pair in added):
        return old
    second = old.second_pair or (new.pair if new.pair in added else None)
    return dataclasses.replace(old, pairs=new.pairs, second_pair=second)


def _without_order(value: Any) -> Any:
    """Seeds, the models of a pair, or pairs in any order; other values as they are."""
    return frozenset(map(_without_order, value)) if isinstance(value, tuple) else value


def _seeds_were(count: int) -> str:
    return "1 seed was" if count == 1 else f"{count} seeds were"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


def read_plan(folder: Path) -> AnalysisPlan | None:
    """The plan of the experiment in a folder; None without a file. Raises InputError: the file cannot be read."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        plan = build(AnalysisPlan, json.loads(path.read_text(encoding="utf-8")))
        if not plan.seeds or not plan.equivalence_margin > 0:
            raise ValueError("it must have some seeds, and equivalence_margin above 0")
        return plan
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not the analysis plan of an experiment: {error}") from error
