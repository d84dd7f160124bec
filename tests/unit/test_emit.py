import json
import shlex
from typing import Any

import pytest
import yaml
from builders import a_decided_profile
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.emit.formats import Format, emit
from dsd_tune.emit.scalars import flow, key, quoted
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table

AWKWARD = '/models/it\'s a "model"/$HOME;ü 漢字'


def _config(profile: Profile) -> Any:
    return json.loads(emit(profile, Format.JSON).text)


def _words(profile: Profile) -> list[str]:
    return shlex.split(emit(profile, Format.CLI).text)


def _yaml(profile: Profile) -> Any:
    return yaml.safe_load(emit(profile, Format.YAML).text)


def _as_vllm_reads(config: dict[str, Any]) -> list[str]:
    """Words on the command line that vLLM makes of a `--config` file."""
    words = []
    for name, value in config.items():
        match value:
            case True:
                words += [f"--{name}"]
            case dict():
                words += [f"--{name}", json.dumps(value)]
            case list():
                words += [f"--{name}", *map(str, value)]
            case _:
                words += [f"--{name}", str(value)]
    return words


def test_a_table_is_emitted_as_vllm_wants_it() -> None:
    """The JSON holds the user's config, the largest K used, and the closed table."""
    assert _config(a_decided_profile(table=Table.from_dense([3] * 4 + [1] * 8 + [0] * 4))) == {
        "method": "eagle",
        "model": "drafter",
        "num_speculative_tokens": 3,
        TABLE_FIELD: [[1, 4, 3], [5, 12, 1], [13, 16, 0]],
    }


SIZES = (1, 2, 4, 8, 12, 16)


def test_capture_sizes_come_with_their_table() -> None:
    """A line, a file and a container give vLLM the sizes that the table needs; beside the JSON they are said."""
    profile = a_decided_profile(capture_sizes=SIZES)
    words = _words(profile)
    at = words.index("--cudagraph-capture-sizes")
    assert words[at + 1 : at + 7] == [str(size) for size in SIZES]
    assert words[at + 7].startswith("--")
    assert _yaml(profile)["cudagraph-capture-sizes"] == list(SIZES)
    for form in (Format.COMPOSE, Format.K8S):
        (words,) = [value for value in yaml.safe_load(emit(profile, form).text).values() if len(value) > 2]
        assert "--cudagraph-capture-sizes" in words
    assert emit(profile, Format.JSON).remarks == ("Start vLLM with --cudagraph-capture-sizes 1 2 4 8 12 16",)


@pytest.mark.parametrize("verdict", [Verdict.FIXED, Verdict.OFF, Verdict.UNCLEAR])
def test_no_capture_sizes_without_their_table(verdict: Verdict) -> None:
    """Sizes belong to a table: whatever else is advised goes without."""
    assert "--cudagraph-capture-sizes" not in _words(a_decided_profile(verdict, capture_sizes=SIZES))


dense = st.lists(st.integers(0, 6), min_size=2, max_size=24).filter(lambda ks: len(set(ks)) > 1)


@given(dense)
def test_tables_need_nothing_of_vllms_leniency(ks: list[int]) -> None:
    """An emitted table starts at 1, has no gap and no overlap, and nothing above its `num_speculative_tokens`."""
    config = _config(a_decided_profile(table=Table.from_dense(ks)))
    read = [k for first, last, k in config[TABLE_FIELD] for _ in range(first, last + 1)]
    assert read == ks
    assert config[TABLE_FIELD][0][0] == 1
    assert config["num_speculative_tokens"] == max(ks)


@pytest.mark.parametrize("verdict", [Verdict.TABLE, Verdict.FIXED])
def test_a_constant_table_is_a_fixed_k(verdict: Verdict) -> None:
    """One K for all batch sizes needs no table."""
    config = _config(a_decided_profile(verdict, table=Table.from_dense([3] * 16), fixed_k=3))
    assert config == {"method": "eagle", "model": "drafter", "num_speculative_tokens": 3}


def test_a_fixed_k_is_not_the_tables() -> None:
    """Where a fixed K is advised, the table that lost to it is not emitted."""
    config = _config(a_decided_profile(Verdict.FIXED, fixed_k=1))
    assert config["num_speculative_tokens"] == 1
    assert TABLE_FIELD not in config


@pytest.mark.parametrize("verdict", [Verdict.OFF, Verdict.UNCLEAR])
def test_nothing_speculative_without_advice(verdict: Verdict) -> None:
    """Without a gain that is proved, every format leaves the speculative config out."""
    profile = a_decided_profile(verdict)
    assert _config(profile) is None
    assert _words(profile) == ["vllm", "serve", "target", "--max-num-seqs", "16"]
    assert _yaml(profile) == {"model": "target", "max-num-seqs": 16}


def test_the_users_own_k_is_replaced() -> None:
    """A `num_speculative_tokens` that was swept over does not survive beside the chosen one; the rest does."""
    config = {"model": "drafter", "num_speculative_tokens": 7, "draft_tensor_parallel_size": 2}
    emitted = _config(a_decided_profile(config=config))
    assert emitted["num_speculative_tokens"] == 2
    assert emitted["draft_tensor_parallel_size"] == 2


@pytest.mark.parametrize("verdict", list(Verdict))
def test_all_formats_say_the_same(verdict: Verdict) -> None:
    """The config on the command line and in YAML is the one in JSON."""
    profile = a_decided_profile(verdict)
    words = _words(profile)
    config = _config(profile)
    assert _yaml(profile).get("speculative-config") == config
    assert ("--speculative-config" in words) is (config is not None)
    if config is not None:
        assert json.loads(words[words.index("--speculative-config") + 1]) == config


def test_awkward_names_survive_every_quoting() -> None:
    """Spaces, quotes, dollars and letters of any script reach vLLM as they were given."""
    profile = a_decided_profile(model=AWKWARD, config={"method": "eagle", "model": AWKWARD})
    assert _config(profile)["model"] == AWKWARD
    words = _words(profile)
    assert words[2] == AWKWARD
    assert json.loads(words[-1])["model"] == AWKWARD
    assert _yaml(profile)["model"] == AWKWARD
    assert _yaml(profile)["speculative-config"]["model"] == AWKWARD


names = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"]), min_size=1, max_size=20)


@given(names)
def test_any_name_survives_every_quoting(name: str) -> None:
    """Whatever a folder is called, all three formats give it back."""
    profile = a_decided_profile(model=name, config={"method": "eagle", "model": name})
    assert _words(profile)[2] == name
    assert _config(profile)["model"] == name
    assert _yaml(profile)["model"] == name
    assert _yaml(profile)["speculative-config"]["model"] == name


def test_flags_are_passed_on_word_for_word() -> None:
    """The command line repeats the flags of the sweep, since they are part of what was measured."""
    flags = ("--enforce-eager", "--dtype=bfloat16", "--compilation-config", '{"mode": 3}', "--seed", "-1")
    assert _words(a_decided_profile(flags=flags))[5:-2] == list(flags)


@pytest.mark.parametrize(
    ("flags", "entry"),
    [
        (("--enforce-eager",), {"enforce-eager": True}),
        (("--max-model-len", "1024"), {"max-model-len": 1024}),
        (("--max-model-len=1024",), {"max-model-len": 1024}),
        (("--seed", "-1"), {"seed": -1}),
        (("--gpu-memory-utilization", "0.9"), {"gpu-memory-utilization": 0.9}),
        (("--revision", "1.10"), {"revision": "1.10"}),
        (("--revision", "0123"), {"revision": "0123"}),
        (("--revision", "1e3"), {"revision": "1e3"}),
        (("--chat-template", ""), {"chat-template": ""}),
        (("--dtype", "bfloat16"), {"dtype": "bfloat16"}),
        (("--compilation-config", '{"mode": 3}'), {"compilation-config": {"mode": 3}}),
        (("--compilation-config.mode=3",), {"compilation-config.mode": 3}),
        (("--capture-sizes", "[1, 2]"), {"capture-sizes": "[1, 2]"}),
        (("--served-model-name", "a", "b"), {"served-model-name": ["a", "b"]}),
        (("--max_model_len", "64"), {"max-model-len": 64}),
        (("-tp", "2"), {"tensor-parallel-size": 2}),
        (("-tp=2", "-ep"), {"tensor-parallel-size": 2, "enable-expert-parallel": True}),
        (("-cc.cudagraph_mode=PIECEWISE",), {"compilation-config.cudagraph_mode": "PIECEWISE"}),
        (("-cc", '{"mode": 3}'), {"compilation-config": {"mode": 3}}),
        (("-O3",), {"optimization-level": 3}),
        (("-O", "1"), {"optimization-level": 1}),
        (("-q", "fp8"), {"quantization": "fp8"}),
        (("--no-enable-prefix-caching", "--enforce-eager"), {"no-enable-prefix-caching": True, "enforce-eager": True}),
        (("--served-model-name", "yes"), {"served-model-name": "yes"}),
        (("--served-model-name", "null"), {"served-model-name": "null"}),
        (("--served-model-name", "true"), {"served-model-name": "true"}),
    ],
    ids=str,
)
def test_flags_become_yaml(flags: tuple[str, ...], entry: dict[str, object]) -> None:
    """Flags with values, switches, lists and JSON become what vLLM turns back into the same flags."""
    config = _yaml(a_decided_profile(flags=flags))
    assert {name: config[name] for name in entry} == entry


@pytest.mark.parametrize(
    "flags",
    [
        ("--middleware", "a", "--middleware", "b"),
        ("--max-model-len", "64", "--max_model_len", "128"),
        ("-tp", "2", "--tensor-parallel-size", "4"),
        ("--chat-template=-x",),
        ("stray", "--enforce-eager"),
    ],
    ids=" ".join,
)
def test_flags_that_a_file_cannot_say_are_refused(flags: tuple[str, ...]) -> None:
    """A flag given twice, a value that looks like a flag or a stray word ends in an error, not in another server."""
    profile = a_decided_profile(flags=flags)
    with pytest.raises(UsageError, match="config file cannot say"):
        emit(profile, Format.YAML)
    assert _words(profile)[5:-2] == list(flags)


words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
values = words.filter(lambda word: not word.startswith(("-", "{", "[")))


@given(
    st.lists(
        st.tuples(st.sampled_from(["--alpha", "--beta-gamma", "--d.e"]), values), max_size=3, unique_by=lambda f: f[0]
    )
)
def test_yaml_gives_vllm_the_same_words(flags: list[tuple[str, str]]) -> None:
    """vLLM's own reading of the file yields, flag by flag, the words that were measured."""
    given_words = tuple(word for flag in flags for word in flag)
    config = _yaml(a_decided_profile(Verdict.OFF, flags=given_words))
    assert _as_vllm_reads(config) == ["--model", "target", "--max-num-seqs", "16", *given_words]


@given(st.text(st.characters(exclude_categories=[])))
def test_every_string_is_yaml_on_one_line(text: str) -> None:
    """Quotes, backslashes, control characters, line separators and lone surrogates come back as they were."""
    for written in (quoted(text), flow(text), flow([text, {"k": text}])):
        assert len(written.splitlines()) == 1
    assert yaml.safe_load(quoted(text)) == text
    assert yaml.safe_load(flow({"k": [text]})) == {"k": [text]}
    assert yaml.safe_load(f"- {quoted(text)}") == [text]


keys = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)


@given(keys | st.sampled_from(["", "on", "yes", "Null", "True", "1e3", "1.5", "- a", "a: b", "#", "--a"]))
def test_every_key_stays_a_string(name: str) -> None:
    """A key that YAML would read as a boolean, a number or a list is quoted."""
    assert yaml.safe_load(f"{key(name)}: 1") == {name: 1}


def test_plain_keys_are_not_quoted() -> None:
    """Flags and fields of vLLM stand in the file as in its documentation."""
    for name in ("tensor-parallel-size", "compilation-config.mode", TABLE_FIELD):
        assert key(name) == name


@pytest.mark.parametrize("form", list(Format))
def test_remarks_travel_as_comments_where_they_can(form: Format) -> None:
    """YAML carries what is said as comments and means the same; the others give it back beside the text."""
    profile = a_decided_profile(method="eagle")
    silent, said = emit(profile, form), emit(profile, form, "one\u2028two\x00")
    if form.takes_comments:
        assert said.remarks == ()
        assert said.text == f"# one two.\n{silent.text}"
        assert yaml.safe_load(said.text) == yaml.safe_load(silent.text)
    else:
        assert said.remarks == ("one\u2028two\x00", *silent.remarks)
        assert said.text == silent.text


@pytest.mark.parametrize("form", [Format.JSON, Format.CLI])
def test_json_is_compact_enough_for_careless_quoting(form: Format) -> None:
    """The config has no space and no doubled opening brace, which shells and templates would take for theirs."""
    text = emit(a_decided_profile(config={"method": "eagle", "x": {"y": {"z": [1, 2]}}}), form).text
    config = shlex.split(text)[-1] if form is Format.CLI else text
    assert " " not in config
    assert "{{" not in config
