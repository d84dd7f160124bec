import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import a_decided_profile, a_validation_request

from dsd_tune.emit.formats import Format, emit
from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Comparison, Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.records.validation import ServedArm, Validation
from dsd_tune.storage import formats

OBEYED = "vLLM 0.32 or later obeys this table"
NOT_VALIDATED = "Not validated: `dsd-tune validate` compares it with no speculation on real servers"

FOR_VLLM = [form for form in Format if form.is_for_vllm]


def _written(folder: Path, profile: Profile) -> Path:
    path = folder / "profile.json"
    formats.write(formats.PROFILE, path, profile)
    return path


def _file(folder: Path, verdict: Verdict = Verdict.TABLE, **changed: Any) -> Path:
    return _written(folder, a_decided_profile(verdict, **{"method": "eagle", **changed}))


@pytest.mark.parametrize("form", list(Format))
def test_stdout_is_what_to_paste(cli: Any, tmp_path: Path, form: Format) -> None:
    """Stdout holds the text in the format asked for and nothing else; stderr holds remarks alone."""
    said = cli("emit-config", _file(tmp_path), "--format", form)
    emission = emit(a_decided_profile(method="eagle"), form, *([OBEYED, NOT_VALIDATED] if form.is_for_vllm else []))
    assert said.out == emission.text + "\n"
    assert said.err.splitlines() == [f"Note: {remark}." for remark in emission.remarks]
    assert said.code == 0


@pytest.mark.parametrize("form", FOR_VLLM)
@pytest.mark.parametrize(
    ("runner", "named"),
    [
        ("v2", "vLLM 0.32 or later obeys this table on model runner V2."),
        ("v2, no_spec v1", "vLLM 0.32 or later obeys this table on model runner V2."),
        ("v1", "vLLM 0.24 or later obeys this table on model runner V1, which takes VLLM_USE_V2_MODEL_RUNNER=0."),
        ("other", "vLLM 0.32 or later obeys this table."),
    ],
)
def test_the_vllm_that_obeys_is_named(cli: Any, tmp_path: Path, form: Format, runner: str, named: str) -> None:
    """The smallest version that obeys the table on the runner that was measured is named once, where it can be."""
    said = cli("emit-config", _file(tmp_path, runner=runner), "--format", form)
    assert (f"# {named}" in said.out.splitlines()) is form.takes_comments
    assert (f"Note: {named}" in said.err.splitlines()) is not form.takes_comments


@pytest.mark.parametrize("form", FOR_VLLM)
def test_capture_sizes_are_explained(cli: Any, tmp_path: Path, form: Format) -> None:
    """Why the text has capture sizes, and what they cost, stands beside it."""
    said = cli("emit-config", _file(tmp_path, capture_sizes=(1, 2, 4)), "--format", form)
    remark = "--cudagraph-capture-sizes has 3 sizes, so that every step keeps the CUDA graph it was measured with"
    assert remark in (said.out if form.takes_comments else said.err)


def _in_ranks(folder: Path, **changed: Any) -> Path:
    """A profile that advises a table, whose best fixed K saves 10 % for sure."""
    profile = a_decided_profile(method="eagle", capture_sizes=(1, 2, 4))
    decision = replace(profile.decision, **{"fixed_gain": Comparison(0.1, 0.05, 0.15, 0.07), **changed})
    return _written(folder, replace(profile, decision=decision))


def test_data_parallel_ranks_get_a_fixed_k(cli: Any, tmp_path: Path) -> None:
    """vLLM drops a table under data parallelism: the best fixed K takes its place, and the exit code tells a script."""
    said = cli("emit-config", _in_ranks(tmp_path), "--data-parallel-size", 8)
    words = shlex.split(said.out)
    assert said.code == 3
    assert words[words.index("--data-parallel-size") + 1] == "8"
    assert json.loads(words[-1]) == {"method": "eagle", "model": "drafter", "num_speculative_tokens": 2}
    assert "--cudagraph-capture-sizes" not in words
    assert "all requests divided by 8" in said.err


def test_data_parallel_ranks_get_no_k_that_may_lose(cli: Any, tmp_path: Path) -> None:
    """Where no fixed K saves anything for sure, nothing takes the table's place."""
    said = cli(
        "emit-config", _in_ranks(tmp_path, fixed_gain=Comparison(0.02, -0.01, 0.05, 0.04)), "--data-parallel-size", 2
    )
    assert said.code == 5
    assert "--speculative-config" not in said.out
    assert "no fixed K saves TPOT for sure. Leave --speculative-config out" in said.err


def test_data_parallel_ranks_change_nothing_else(cli: Any, tmp_path: Path) -> None:
    """A fixed K is as good on each rank as on one engine, and other servers keep their table."""
    fixed = cli("emit-config", _file(tmp_path, Verdict.FIXED), "--data-parallel-size", 8)
    assert fixed.code == 0
    assert '"num_speculative_tokens":2' in fixed.out
    assert "draft_len_schedule" in cli("emit-config", _in_ranks(tmp_path), "--format", "trtllm").out


def test_the_cpu_build_needs_no_way_to_its_runner(cli: Any, tmp_path: Path) -> None:
    """On a CPU vLLM chooses model runner V1 by itself."""
    said = cli("emit-config", _file(tmp_path, runner="v1", device="cpu"))
    assert said.err.splitlines()[0] == "Note: vLLM 0.24 or later obeys this table on model runner V1."


def test_what_servers_said_stands_beside_the_text(cli: Any, tmp_path: Path) -> None:
    """A validated profile says when, under which load and with what outcome."""
    validation = Validation(
        a_validation_request(), ServedArm.TABLE, (), (), Said.BETTER, (), loads=12, created_at_s=1764500000.0
    )
    path = tmp_path / "profile.json"
    formats.write(formats.PROFILE, path, replace(a_decided_profile(method="eagle"), validation=validation))
    named = "Validated on 2025-11-30 with 1, 4 requests at a time: table is better than no speculation"
    assert f"Note: {named}." in cli("emit-config", path).err.splitlines()


def test_a_table_that_no_vllm_obeys_is_said_to_be_one(cli: Any, tmp_path: Path) -> None:
    """Where every version drops the table, the reason stands beside it."""
    said = cli("emit-config", _file(tmp_path, flags=("-dp", "8")))
    assert said.err.startswith("Note: No vLLM so far obeys this table: With data_parallel_size 8, vLLM drops the table")


@pytest.mark.parametrize("verdict", [Verdict.FIXED, Verdict.OFF])
def test_without_a_table_no_version_is_named(cli: Any, tmp_path: Path, verdict: Verdict) -> None:
    """A fixed K works in every vLLM, and nothing is said about versions."""
    assert "obeys" not in cli("emit-config", _file(tmp_path, verdict)).err


def test_acceptance_is_worth_having_without_a_gain(cli: Any, tmp_path: Path) -> None:
    """A speculation profile describes the drafter: the exit code is 0 whatever the verdict."""
    said = cli("emit-config", _file(tmp_path, Verdict.OFF), "--format", "speculation-profile")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["measured"]


def test_other_servers_get_the_verdict_too(cli: Any, tmp_path: Path) -> None:
    """A verdict against speculation holds for them in their own words."""
    said = cli("emit-config", _file(tmp_path, Verdict.OFF), "--format", "trtllm")
    assert said.code == 4
    assert "Leave speculation off" in said.err
    assert yaml.safe_load(said.out) == {"max_batch_size": 16}


def test_what_a_format_cannot_say_is_refused(cli: Any, tmp_path: Path) -> None:
    """A table outside a format's reach ends with exit code 2 and no text."""
    path = _file(tmp_path, table=Table.from_dense([0, 3, 3, 3]))
    assert "Use a fixed max_draft_len" in cli("emit-config", path, "--format", "trtllm").refused(2)


def test_a_serve_line_is_the_default(cli: Any, tmp_path: Path) -> None:
    """Without a format the output is one line for a shell."""
    said = cli("emit-config", _file(tmp_path))
    assert shlex.split(said.out)[:2] == ["vllm", "serve"]
    assert said.out.count("\n") == 1


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.OFF, 4), (Verdict.UNCLEAR, 5)])
def test_no_advice_leaves_the_config_out(cli: Any, tmp_path: Path, verdict: Verdict, code: int) -> None:
    """Where nothing is advised the line goes without speculation, the exit code says so, and stderr says why."""
    said = cli("emit-config", _file(tmp_path, verdict))
    assert said.code == code
    assert shlex.split(said.out)[:3] == ["vllm", "serve", "target"]
    assert "--speculative-config" not in said.out
    assert str(verdict) in said.err
    assert "Leave --speculative-config out" in said.err
    assert json.loads(cli("emit-config", _file(tmp_path, verdict), "--format", "json").out) is None


def test_no_such_file(cli: Any, tmp_path: Path) -> None:
    """A profile that does not exist is refused by name."""
    assert "nowhere.json cannot be read" in cli("emit-config", tmp_path / "nowhere.json").refused(2)


def test_a_folder_is_no_profile(cli: Any, tmp_path: Path) -> None:
    """A run directory in place of its profile is refused, and not with a traceback."""
    assert "cannot be read" in cli("emit-config", tmp_path).refused(2)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("dsd-tune profile", "dsd-tune manifest", "is no dsd-tune profile"),
        (f'"version": {formats.PROFILE.version}', '"version": 99', "was written by a newer dsd-tune (version 99)"),
        ('"verdict": "deploy this table"', '"verdict": "hope"', "is damaged"),
        ('"fixed_k": 2', '"fixed_k": null', "is damaged"),
        ('"profile": {', '"profile": [', "is not JSON"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_damaged_profiles_are_refused(cli: Any, tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """A file of another kind, a newer version or a damaged one is refused in one sentence."""
    path = _file(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert complaint in cli("emit-config", path).refused(2)


def test_an_unknown_format_is_a_usage_error(cli: Any, tmp_path: Path) -> None:
    """A format that does not exist ends with exit code 2 and the list of those that do."""
    said = cli("emit-config", _file(tmp_path), "--format", "toml")
    assert (said.code, said.out) == (2, "")
    assert all(form in said.err for form in Format)
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "config", ["[]", "3", "null", "{", "", "[" * 100_000], ids=["list", "number", "null", "cut", "empty", "deep"]
)
@pytest.mark.parametrize("form", FOR_VLLM)
def test_a_config_that_is_no_object_is_refused(cli: Any, tmp_path: Path, form: Format, config: str) -> None:
    """A profile whose own speculative config is no JSON object is refused in one sentence, in every format."""
    profile = a_decided_profile(Verdict.TABLE, method="eagle")
    assert profile.request is not None
    damaged = replace(profile, request=replace(profile.request, speculative_config=config))
    cli("emit-config", _written(tmp_path, damaged), "--format", form).refused(2)
