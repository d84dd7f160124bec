import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from builders import a_profile, a_request, an_environment
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.emit import TABLE_KEY, Format, emit
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table

AWKWARD = '/models/it\'s a "model"/$HOME;ü 漢字'


def _profile(
    verdict: Verdict = Verdict.TABLE,
    *,
    table: Table | None = None,
    fixed_k: int = 2,
    flags: tuple[str, ...] = (),
    config: dict[str, Any] | None = None,
    model: str = "target",
) -> Profile:
    profile = a_profile(environment=an_environment(model=model))
    text = json.dumps(config or {"method": "eagle", "model": "drafter"})
    table = table or profile.decision.table
    assert table
    decision = replace(profile.decision, verdict=verdict, table=table, max_num_seqs=table.max_num_seqs, fixed_k=fixed_k)
    return replace(
        profile,
        request=a_request(model=model, engine_flags=flags, speculative_config=text),
        decision=decision,
    )


def _config(profile: Profile) -> Any:
    return json.loads(emit(profile, Format.JSON))


def _words(profile: Profile) -> list[str]:
    return shlex.split(emit(profile, Format.CLI))


def _yaml(profile: Profile) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(emit(profile, Format.YAML))


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
    assert _config(_profile(table=Table.from_dense([3] * 4 + [1] * 8 + [0] * 4))) == {
        "method": "eagle",
        "model": "drafter",
        "num_speculative_tokens": 3,
        TABLE_KEY: [[1, 4, 3], [5, 12, 1], [13, 16, 0]],
    }


dense = st.lists(st.integers(0, 6), min_size=2, max_size=24).filter(lambda ks: len(set(ks)) > 1)


@given(dense)
def test_tables_need_nothing_of_vllms_leniency(ks: list[int]) -> None:
    """An emitted table starts at 1, has no gap and no overlap, and nothing above its `num_speculative_tokens`."""
    config = _config(_profile(table=Table.from_dense(ks)))
    read = [k for first, last, k in config[TABLE_KEY] for _ in range(first, last + 1)]
    assert read == ks
    assert config[TABLE_KEY][0][0] == 1
    assert config["num_speculative_tokens"] == max(ks)


@pytest.mark.parametrize("verdict", [Verdict.TABLE, Verdict.FIXED])
def test_a_constant_table_is_a_fixed_k(verdict: Verdict) -> None:
    """One K for all batch sizes needs no table."""
    config = _config(_profile(verdict, table=Table.from_dense([3] * 16), fixed_k=3))
    assert config == {"method": "eagle", "model": "drafter", "num_speculative_tokens": 3}


def test_a_fixed_k_is_not_the_tables() -> None:
    """Where a fixed K is advised, the table that lost to it is not emitted."""
    config = _config(_profile(Verdict.FIXED, fixed_k=1))
    assert config["num_speculative_tokens"] == 1
    assert TABLE_KEY not in config


@pytest.mark.parametrize("verdict", [Verdict.OFF, Verdict.UNCLEAR])
def test_nothing_speculative_without_advice(verdict: Verdict) -> None:
    """Without a gain that is proved, every format leaves the speculative config out."""
    profile = _profile(verdict)
    assert _config(profile) is None
    assert _words(profile) == ["vllm", "serve", "target", "--max-num-seqs", "16"]
    assert _yaml(profile) == {"model": "target", "max-num-seqs": 16}


def test_the_users_own_k_is_replaced() -> None:
    """A `num_speculative_tokens` that was swept over does not survive beside the chosen one; the rest does."""
    config = {"model": "drafter", "num_speculative_tokens": 7, "draft_tensor_parallel_size": 2}
    emitted = _config(_profile(config=config))
    assert emitted["num_speculative_tokens"] == 2
    assert emitted["draft_tensor_parallel_size"] == 2


@pytest.mark.parametrize("verdict", list(Verdict))
def test_all_formats_say_the_same(verdict: Verdict) -> None:
    """The config on the command line and in YAML is the one in JSON."""
    profile = _profile(verdict)
    words = _words(profile)
    config = _config(profile)
    assert _yaml(profile).get("speculative-config") == config
    assert ("--speculative-config" in words) is (config is not None)
    if config is not None:
        assert json.loads(words[words.index("--speculative-config") + 1]) == config


def test_awkward_names_survive_every_quoting() -> None:
    """Spaces, quotes, dollars and letters of any script reach vLLM as they were given."""
    profile = _profile(model=AWKWARD, config={"method": "eagle", "model": AWKWARD})
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
    profile = _profile(model=name, config={"method": "eagle", "model": name})
    assert _words(profile)[2] == name
    assert _config(profile)["model"] == name
    assert _yaml(profile)["model"] == name
    assert _yaml(profile)["speculative-config"]["model"] == name


def test_flags_are_passed_on_word_for_word() -> None:
    """The command line repeats the flags of the sweep, since they are part of what was measured."""
    flags = ("--enforce-eager", "--dtype=bfloat16", "--compilation-config", '{"mode": 3}', "--seed", "-1")
    assert _words(_profile(flags=flags))[5:-2] == list(flags)


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
        (("--middleware", "a", "b"), {"middleware": ["a", "b"]}),
        (("--no-enable-prefix-caching", "--enforce-eager"), {"no-enable-prefix-caching": True, "enforce-eager": True}),
        (("--served-model-name", "yes"), {"served-model-name": "yes"}),
        (("--served-model-name", "null"), {"served-model-name": "null"}),
        (("--served-model-name", "true"), {"served-model-name": "true"}),
    ],
    ids=str,
)
def test_flags_become_yaml(flags: tuple[str, ...], entry: dict[str, object]) -> None:
    """Flags with values, switches, lists and JSON become what vLLM turns back into the same flags."""
    config = _yaml(_profile(flags=flags))
    assert {name: config[name] for name in entry} == entry


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
    config = _yaml(_profile(Verdict.OFF, flags=given_words))
    assert _as_vllm_reads(config) == ["--model", "target", "--max-num-seqs", "16", *given_words]
