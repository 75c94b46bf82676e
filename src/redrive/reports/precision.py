"""A policy's precision as lines.

Knows lines. Must not know how figures are computed.

Source: DESIGN.md §8 `policy precision`.
"""

from collections.abc import Iterator

from redrive.compare.precision import Precision, Recall
from redrive.reports.counts import counted
from redrive.reports.escape import escape


def precision_lines(found: Precision) -> Iterator[str]:
    """Yield the figure, its interval, what it was counted from, agreement and notes."""
    sure = _percent(found.confidence)
    name = f"{escape(found.policy)}@{escape(found.version)}"
    if found.precision is None or found.low is None or found.high is None:
        yield f"{name}  precision unknown: no fire is labelled true or false"
    else:
        yield (
            f"{name}  precision {found.precision:.3f} on these sessions, {sure} interval"
            f" {found.low:.3f} to {found.high:.3f} ({found.n_true} of"
            f" {found.n_true + found.n_false}, Clopper-Pearson)"
        )
    if found.at_gate is not None:
        gate = found.at_gate
        yield f"  at a gate  {gate.k} of {gate.n}, lower bound {gate.low:.3f}; unsure is false"
    if found.sample is not None:
        raters = f" by {', '.join(map(escape, found.raters))}" if found.raters else ""
        yield (
            f"  labels     {found.n_true} true, {found.n_false} false, {found.n_unsure} unsure,"
            f" {found.n_disagree} not settled{raters}; {found.n_labelled} of {found.drawn} drawn"
            f" from {counted(found.population, 'fire')}, sample {escape(found.sample)}"
        )
    if found.agreement_raw is not None and found.agreement_ac1 is not None:
        yield (
            f"  agreement  {found.agreement_raw:.3f} raw, {found.agreement_ac1:.3f} Gwet AC1, of"
            f" {' and '.join(map(escape, found.agreement_of))} on"
            f" {counted(found.n_double, 'fire')}"
        )
    yield from (f"  note       {escape(note)}" for note in found.notes)


def recall_lines(found: Recall) -> Iterator[str]:
    """Yield the recall against its named set, and what it missed."""
    name = escape(found.name)
    yield (
        f"  recall     {found.k} of {counted(found.n, 'place')} in {name},"
        f" {_percent(found.confidence)} interval {found.low:.3f} to {found.high:.3f}"
    )
    yield from (f"  note       {escape(note)}" for note in found.notes)
    yield from (f"  missed     {escape(ref)}" for ref in found.missed)


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
