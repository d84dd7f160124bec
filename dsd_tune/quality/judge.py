"""From what was measured to what makes it doubtful: every warning of the closed list, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsd_tune.model.caveats import caveats
from dsd_tune.model.findings import Findings
from dsd_tune.quality.on_plan import on_plan
from dsd_tune.quality.on_text import on_text
from dsd_tune.quality.on_times import on_times
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.published import Published
from dsd_tune.records.run import Manifest
from dsd_tune.records.warning import Code, QualityWarning


def judge(manifest: Manifest, samples: Sequence[Block | Failure], findings: Findings) -> tuple[QualityWarning, ...]:
    """What is doubtful about a run, and about the surface fitted to it."""
    blocks = [sample for sample in samples if isinstance(sample, Block)]
    return (
        *on_plan(manifest.request, samples),
        *on_times(samples),
        *_outlier_cells(findings),
        *_on_acceptance(manifest, blocks),
    )


def _on_acceptance(manifest: Manifest, blocks: Sequence[Block]) -> Iterator[QualityWarning]:
    environment = manifest.environment
    if not environment.cost_only:
        yield from on_text(blocks, manifest.request.ks, environment.method)
        return
    stated = ", ".join(f"{share:g}" for share in environment.synthetic_acceptance)
    said = (
        f"acceptance was stated ({stated}), not measured" if stated else "weights were invented: only cost was measured"
    )
    hint = "Measure with the model's weights, its drafter and real prompts before you deploy."
    yield QualityWarning(Code.COST_ONLY, (), said, hint)


def judge_import(published: Published, findings: Findings) -> tuple[QualityWarning, ...]:
    """What numbers made elsewhere cannot say. Each caveat is a warning of one code, since one thing mends them all."""
    said = (*caveats(published), *published.remarks)
    hint = "dsd-tune sweep measures all this on your own machine."
    return (*(QualityWarning(Code.IMPORTED, (), sentence, hint) for sentence in said), *_outlier_cells(findings))


def _outlier_cells(findings: Findings) -> Iterator[QualityWarning]:
    for cell, times in findings.outliers:
        yield QualityWarning(
            Code.OUTLIER_CELL,
            (cell,),
            f"B={cell.batch_size} K={cell.k} is an outlier: its step takes {times:.1f} times what its neighbours in "
            "batch size and in K say. It is left as it is, and nothing else is read off it",
            "Measure it again: if it stays, the engine has a cliff there.",
        )
