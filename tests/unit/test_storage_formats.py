import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builders import A_CONDITION, a_block, a_failure, a_load, a_manifest, a_profile, a_request

from dsd_tune.errors import UsageError
from dsd_tune.records.profile import ConditionResult, Profile
from dsd_tune.records.warning import Code
from dsd_tune.storage import formats
from dsd_tune.storage.formats import MANIFEST, PROFILE, Kind

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@dataclass(frozen=True, slots=True)
class _Note:
    text: str
    stars: int


NOTE_3 = Kind("note", 3, _Note)


@pytest.fixture
def note_upgrades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 called the text `words`; version 2 had no stars."""

    def rename(body: Any) -> Any:
        return {"text": body["words"]}

    def add_stars(body: Any) -> Any:
        return body | {"stars": 0}

    monkeypatch.setitem(formats.UPGRADES, ("note", 1), rename)
    monkeypatch.setitem(formats.UPGRADES, ("note", 2), add_stars)


def _written(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_a_file_gives_back_its_record(tmp_path: Path) -> None:
    """A manifest and a profile read from disk equal those written."""
    formats.write(MANIFEST, tmp_path / "m", a_manifest())
    formats.write(PROFILE, tmp_path / "p", a_profile())
    assert formats.read(MANIFEST, tmp_path / "m") == a_manifest()
    assert formats.read(PROFILE, tmp_path / "p") == a_profile()


def test_profiles_of_version_1_still_load() -> None:
    """A profile written before imports could be fitted says the same as ever, its boundaries between measured sizes."""
    profile = formats.read(PROFILE, GOLDEN / "profile-1.json")
    assert profile.request == a_profile().request
    assert profile.cells == _of_version_4(a_profile()).cells
    assert (profile.facts, profile.held_out) == ((), None)
    old = replace(_of_version_4(a_profile()).decision, confirmed_over_fixed=None, remarks=())
    assert _of_version_4(profile).decision == old


def test_runs_of_one_condition_still_load() -> None:
    """A run and a profile written before sweeps had several contexts and temperatures say the same as ever."""
    assert formats.read(MANIFEST, GOLDEN / "manifest-1.json") == a_manifest()
    assert formats.read_samples(GOLDEN / "samples-1.jsonl", a_request()) == (1, [a_block(), a_failure()])
    assert _of_version_4(formats.read(PROFILE, GOLDEN / "profile-3.json")) == _of_version_4(a_profile())


def test_profiles_of_version_2_still_load() -> None:
    """A profile written before anybody asked for a table's graphs needs no capture sizes."""
    assert _of_version_4(formats.read(PROFILE, GOLDEN / "profile-2.json")) == _of_version_4(a_profile())


def test_profiles_without_codes_still_load() -> None:
    """A profile written before warnings had codes keeps their words, and its intervals tell what was detectable."""
    profile = formats.read(PROFILE, GOLDEN / "profile-4.json")
    assert _of_version_4(profile) == _of_version_4(a_profile())
    assert [(warning.code, warning.said) for warning in profile.warnings] == [(Code.UNCODED, "few starts")]
    assert profile.decision.table_gain.detectable == pytest.approx(0.05 * 2.8 / 1.96)
    assert profile.k0_tax[0].share.detectable == pytest.approx(0.05 * 2.8 / 1.96)


def test_files_in_which_nothing_was_stated_still_load() -> None:
    """A run and a profile written before acceptance could be stated were measured, under one condition."""
    assert formats.read(MANIFEST, GOLDEN / "manifest-2.json") == a_manifest()
    profile = formats.read(PROFILE, GOLDEN / "profile-5.json")
    assert profile == _of_version_7(a_profile())
    assert (profile.conditions, profile.cost_only) == ((), False)


def test_profiles_that_no_server_tried_still_load() -> None:
    """A profile written before `validate` is one that was not validated."""
    assert formats.read(PROFILE, GOLDEN / "profile-6.json") == _of_version_7(a_profile(validation=None))


def test_profiles_without_rivals_still_load() -> None:
    """A profile written before anybody told which other Ks a table could have says the same as ever, in each part."""
    profile = formats.read(PROFILE, GOLDEN / "profile-7.json")
    one = a_profile()
    parts = tuple(
        ConditionResult(condition, one.cells, one.acceptance_lengths, one.decision, None)
        for condition in (A_CONDITION, replace(A_CONDITION, context=4096))
    )
    assert profile == _of_version_7(a_profile(conditions=parts))


def _of_version_7(profile: Profile) -> Profile:
    """A profile without what that version could not say."""
    parts = tuple(replace(part, decision=replace(part.decision, rivals=())) for part in profile.conditions)
    return replace(profile, decision=replace(profile.decision, rivals=()), conditions=parts)


def _of_version_4(profile: Profile) -> Profile:
    """A profile without what that version could not say."""
    decision = profile.decision
    names = ("table_gain", "fixed_gain", "table_over_fixed")
    return replace(
        profile,
        cells=tuple(replace(cell, cv=None) for cell in profile.cells),
        k0_tax=tuple(replace(tax, share=replace(tax.share, detectable=0)) for tax in profile.k0_tax),
        variance=replace(profile.variance, trend=None, limit=None),
        decision=replace(
            decision, rivals=(), **{name: replace(getattr(decision, name), detectable=0) for name in names}
        ),
        warnings=(),
    )


def test_loads_without_counts_still_load(tmp_path: Path) -> None:
    """A file of version 1 has no counts and texts of one length; what is appended to it today keeps its own."""
    path, load = tmp_path / "loads.jsonl", a_load(draft_tokens=7, accepted_tokens=3)
    formats.write_lines(formats.LOADS, path, [load])
    header, line = map(json.loads, path.read_text().splitlines())
    new = ("draft_tokens", "accepted_tokens", "output_lens", "drafts", "input_lens", "vllm_version")
    old = {key: value for key, value in line.items() if key not in new} | {"output_tokens": load.output_tokens}
    path.write_text(f"{json.dumps(header | {'version': 1})}\n{json.dumps(old)}\n")
    formats.append_line(path, load)
    first, second = formats.read_lines(formats.LOADS, path)
    assert (first.draft_tokens, first.mean_k, first.output_lens) == (None, None, load.output_lens)
    assert second == load


def test_loads_without_prompts_still_load(tmp_path: Path) -> None:
    """A file of version 2 knows no lengths of prompts and no drafts; what is appended to it today keeps its own."""
    path, load = tmp_path / "loads.jsonl", a_load(input_lens=(40,) * 8, drafts=5)
    formats.write_lines(formats.LOADS, path, [load])
    header, line = map(json.loads, path.read_text().splitlines())
    old = {key: value for key, value in line.items() if key not in ("input_lens", "drafts", "vllm_version")}
    path.write_text(f"{json.dumps(header | {'version': 2})}\n{json.dumps(old)}\n")
    formats.append_line(path, load)
    assert formats.read_lines(formats.LOADS, path) == [replace(load, input_lens=None, drafts=None), load]


def test_loads_of_unknown_versions_still_load(tmp_path: Path) -> None:
    """A file of version 3 does not know which vLLM served; what is appended to it today does."""
    path, load = tmp_path / "loads.jsonl", a_load(vllm_version="0.32.0")
    formats.write_lines(formats.LOADS, path, [load])
    header, line = map(json.loads, path.read_text().splitlines())
    del line["vllm_version"]
    path.write_text(f"{json.dumps(header | {'version': 3})}\n{json.dumps(line)}\n")
    formats.append_line(path, load)
    assert formats.read_lines(formats.LOADS, path) == [replace(load, vllm_version=None), load]


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    """A file begins with its kind and version, and holds the record under the kind's word."""
    formats.write(PROFILE, tmp_path / "p", a_profile())
    document = json.loads((tmp_path / "p").read_text())
    assert list(document) == ["format", "version", "profile"]
    assert (document["format"], document["version"]) == ("dsd-tune profile", formats.PROFILE_VERSION)


@pytest.mark.parametrize(
    ("version", "body"), [(1, {"words": "hi"}), (2, {"text": "hi"}), (3, {"text": "hi", "stars": 0})]
)
@pytest.mark.usefixtures("note_upgrades")
def test_an_old_file_is_read_through_every_step(tmp_path: Path, version: int, body: object) -> None:
    """A file of any older version is brought up to date, one version at a time."""
    path = _written(tmp_path / "n", {"format": "dsd-tune note", "version": version, "note": body})
    assert formats.read(NOTE_3, path) == _Note("hi", 0)


def test_no_step_is_missing() -> None:
    """Each version that ever existed can be brought to the next one."""
    newest = {
        "manifest": formats.MANIFEST_VERSION,
        "profile": formats.PROFILE_VERSION,
        "loads": formats.LOADS_VERSION,
    }
    assert set(formats.UPGRADES) == {(word, old) for word, new in newest.items() for old in range(1, new)}
    assert set(formats.SAMPLE_UPGRADES) == set(range(1, formats.SAMPLES_VERSION))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"format": "dsd-tune note", "version": 4, "note": {}}, "written by a newer dsd-tune"),
        ({"format": "dsd-tune manifest", "version": 1, "manifest": {}}, "is no dsd-tune note"),
        ({"text": "hi"}, "is no dsd-tune note"),
        ([1], "is no dsd-tune note"),
        ({"format": "dsd-tune note", "version": "3", "note": {}}, "version '3' never existed"),
        ({"format": "dsd-tune note", "version": 0, "note": {}}, "version 0 never existed"),
        ({"format": "dsd-tune note", "version": 3}, "note: expected an object, got null"),
        ({"format": "dsd-tune note", "version": 3, "note": {"text": 1, "stars": 1}}, "note.text: expected a string"),
    ],
    ids=range(8),
)
def test_what_is_no_such_file_is_refused_in_one_sentence(tmp_path: Path, document: object, why: str) -> None:
    """A newer version, another kind and a damaged file are each refused with the path and the reason."""
    path = _written(tmp_path / "n", document)
    with pytest.raises(UsageError) as raised:
        formats.read(NOTE_3, path)
    assert raised.value.what.startswith(str(path))
    assert why in raised.value.what
    assert raised.value.what.endswith(".")


def test_what_is_not_json_is_refused_with_its_path(tmp_path: Path) -> None:
    """A file that is not JSON is named."""
    path = tmp_path / "n"
    path.write_text("Dear diary")
    with pytest.raises(UsageError, match=f"^{path} is not JSON"):
        formats.read(NOTE_3, path)


def test_samples_come_back_in_order(tmp_path: Path) -> None:
    """Blocks and failures are read in the order of measuring, whether written at once or appended."""
    path = tmp_path / "s"
    formats.write_samples(path, [a_failure(), a_block()])
    formats.append_sample(path, a_block(slot=3))
    assert formats.read_samples(path, a_request()) == (
        formats.SAMPLES_VERSION,
        [a_failure(), a_block(), a_block(slot=3)],
    )


@pytest.mark.parametrize("line", [{"blok": {}}, {}, [], {"block": {}, "failure": {}}, {"block": {}}], ids=repr)
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: object) -> None:
    """A line that holds neither a block nor a failure is refused with its number."""
    path = tmp_path / "s"
    formats.write_samples(path, [a_block()])
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match="s, line 3, is damaged"):
        formats.read_samples(path, a_request())


@pytest.mark.parametrize("text", ["", '{"block":{}}\n', '{"format":"dsd-tune profile","version":1}\n'], ids=repr)
def test_samples_need_their_header(tmp_path: Path, text: str) -> None:
    """A file without the header line of samples is not read as samples."""
    path = tmp_path / "s"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no dsd-tune samples"):
        formats.read_samples(path, a_request())


@pytest.mark.parametrize("sample", [a_block(), a_failure()])
def test_a_sample_can_stand_by_itself(sample: Any) -> None:
    """Outside a file each sample carries its header, and comes back the same."""
    document = json.loads(json.dumps(formats.sample_document(sample)))
    assert document["version"] == formats.SAMPLES_VERSION
    assert formats.parse_sample(document, a_request(), "somewhere") == sample


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"version": 99}, "there was written by a newer dsd-tune"),
        ({"format": "dsd-tune profile"}, "there is no dsd-tune samples"),
        ({"block": {}}, "there is damaged: block"),
        ({"more": 1}, "there is damaged: expected one object"),
    ],
)
def test_a_sample_by_itself_is_read_strictly(changed: dict[str, Any], complaint: str) -> None:
    """Newer, foreign and damaged samples are refused with the place where they were found."""
    with pytest.raises(UsageError, match=complaint):
        formats.parse_sample(formats.sample_document(a_block()) | changed, a_request(), "there")


def test_old_samples_by_themselves_are_brought_up_to_date() -> None:
    """A sample that an older dsd-tune put into a study is read like a line of its file."""
    path = GOLDEN / "samples-1.jsonl"
    request = formats.read(MANIFEST, GOLDEN / "manifest-1.json").request
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert [formats.parse_sample(header | line, request, "there") for line in lines] == formats.read_samples(
        path, request
    )[1]
