import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).parent.parent / "data" / "configs" / "speculative_configs.jsonl"
CASES = {case["id"]: case for case in map(json.loads, CONFIGS.read_text().splitlines())}

HEALTHY = (
    '{"method":"eagle3","model":"d","num_speculative_tokens":3,'
    '"num_speculative_tokens_per_batch_size":[[1,32,3],[33,256,1]]}'
)
NEW = ("--vllm-version", "0.33.0")


def flags(name: str) -> list[str]:
    """The command line of a case."""
    case = CASES[name]
    words = ["--speculative-config", json.dumps(case["cfg"])]
    for key in ("max_num_seqs", "data_parallel_size", "max_cudagraph_capture_size"):
        if key in case:
            words += [f"--{key.replace('_', '-')}", str(case[key])]
    return words


def answer(cli: Any, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a check."""
    said = cli("check", "--json", *words)
    return said.code, json.loads(said.out)


def of(found: dict[str, Any], severity: str) -> list[str]:
    """The codes of one severity."""
    return [finding["code"] for finding in found["findings"] if finding["severity"] == severity]


def ks(found: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The lookup as first, last and K."""
    return [(span["first"], span["last"], span["k"]) for span in found["lookup"]]


def said_about(found: dict[str, Any], code: str) -> str:
    """Reason and mend of the one finding with this code."""
    (finding,) = [finding for finding in found["findings"] if finding["code"] == code]
    return f"{finding['reason']} {finding['mend']}"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("empty", "table-empty", ["gives up FULL graphs", "Leave the table out"]),
        ("start2", "table-start", ["must start at 1", "[2,64,3]", "at engine start"]),
        ("overlap", "range-overlap", ["[1,64,3] and [64,128,1]", "at engine start"]),
        ("old_dict", "table-shape", ["[[1,63,3],[64,255,2],[256,256,0]]", "parses its configuration"]),
        ("five_tuple", "table-shape", ["[1,64,0,32768,3]", "three whole numbers"]),
        ("k_over_max", "k-above-max", ["K 7 at batch sizes 1-2", "the lookup is [[1,8,5]]"]),
    ],
)
def test_refuses_what_vllm_would_not_do(cli: Any, name: str, code: str, words: list[str]) -> None:
    """An impossible or clamped table is an error that names what is at fault and what would happen."""
    exit_code, found = answer(cli, *flags(name), *NEW)
    assert (exit_code, of(found, "error")) == (1, [code])
    text = said_about(found, code)
    assert [word for word in words if word not in text] == []


def test_prints_what_fills_a_gap(cli: Any) -> None:
    """A gap is a warning, and the lookup shows the K that vLLM carries over it."""
    exit_code, found = answer(cli, *flags("gap"), *NEW)
    assert exit_code == 0
    assert {"table-gap", "range-beyond"} <= set(of(found, "warning"))
    assert "[[1,63,3],[64,255,2],[256,512,0]]" in said_about(found, "table-gap")
    assert ks(found) == [(1, 16, 3), (17, 63, 3), (64, 128, 2), (129, 255, 2), (256, 512, 0)]
    assert [span["origin"] for span in found["lookup"]] == ["stated", "gap", "stated", "gap", "stated"]


def test_shows_how_far_the_last_k_is_carried(cli: Any) -> None:
    """The tail is a warning, and is part of the lookup up to max_num_seqs."""
    exit_code, found = answer(cli, *flags("tail_carry"), *NEW)
    assert exit_code == 0
    assert "K 3 on to batch sizes 65-256" in said_about(found, "table-tail")
    assert ks(found) == [(1, 64, 3), (65, 256, 3)]


def test_accepts_unsorted_ranges(cli: Any) -> None:
    """Order is no error, since vLLM sorts."""
    exit_code, found = answer(cli, *flags("unsorted"), *NEW)
    assert (exit_code, of(found, "error")) == (0, [])
    assert "table-unsorted" in of(found, "note")
    assert ks(found) == [(1, 64, 3), (65, 128, 1)]


def test_advises_against_a_table_of_zeros(cli: Any) -> None:
    """K = 0 everywhere still costs the drafter, so the flag should go."""
    exit_code, found = answer(cli, *flags("all_zero"), *NEW)
    assert exit_code == 0
    assert "Remove --speculative-config" in said_about(found, "always-zero")


def test_accepts_k_that_rises_with_batch_size(cli: Any) -> None:
    """No drafts at batch size 1 and three above is legal, and shown as it is."""
    exit_code, found = answer(cli, *flags("k0_first"), *NEW)
    assert (exit_code, of(found, "error")) == (0, [])
    assert ks(found) == [(1, 1, 0), (2, 512, 3)]


def test_data_parallelism_drops_the_table(cli: Any) -> None:
    """Under data parallelism the lookup is the fixed K that vLLM falls back to, and the mend is one K for one rank."""
    exit_code, found = answer(cli, *flags("dp8"), *NEW)
    assert (exit_code, of(found, "error")) == (1, ["data-parallel-drops-table"])
    hint = "all requests divided by 8; K 3 up to 512; K 1 up to 2048"
    assert hint in said_about(found, "data-parallel-drops-table")
    assert ks(found) == [(1, 256, 3)]
    assert found["lookup"][0]["origin"] == "dropped"


def test_data_parallelism_hangs_older_releases(cli: Any) -> None:
    """Before 0.26 ranks could disagree on K and wait forever."""
    exit_code, found = answer(cli, *flags("dp8"), "--vllm-version", "0.25.1", "--model-runner", "v1")
    assert (exit_code, of(found, "error")) == (1, ["data-parallel-deadlock"])


@pytest.mark.parametrize(("version", "code"), [("0.32.0", "method-stops-engine"), ("0.33.0", "method-drops-table")])
def test_suffix_decoding_takes_no_table(cli: Any, version: str, code: str) -> None:
    """Suffix decoding crashes under a table or loses it, and its K is only a cap."""
    exit_code, found = answer(cli, *flags("suffix"), "--vllm-version", version)
    assert (exit_code, of(found, "error")) == (1, [code])
    assert "k-is-a-cap" in of(found, "note")


@pytest.mark.parametrize("version", ["0.25.1", "0.28.0", "0.31.0"])
def test_a_runner_that_ignores_the_table_is_named(cli: Any, version: str) -> None:
    """Before 0.32 model runner V2 drafts K_max in every step; asked for by the environment it is the same."""
    words = ("--speculative-config", HEALTHY, "--max-num-seqs", "256", "--vllm-version", version)
    found = answer(cli, *words, "--model-runner", "v2")[1]
    assert "drafts num_speculative_tokens in every step, even at K 0" in said_about(found, "runner-drafts-k-max")
    line = f"VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m --max-num-seqs 256 -sc '{HEALTHY}'"
    assert "runner-drafts-k-max" in str(answer(cli, "--vllm-version", version, "--", line)[1])


def test_graphs_lost_by_having_a_table_are_named(cli: Any) -> None:
    """On runner V1 a table runs PIECEWISE where a fixed K keeps FULL: the likely cause of a table that loses."""
    words = ("--speculative-config", HEALTHY, "--max-num-seqs", "256", "--model-runner", "v1")
    found = answer(cli, *words, *NEW)[1]
    assert "turns FULL_AND_PIECEWISE into PIECEWISE" in said_about(found, "runner-piecewise")


def drafting(**config: object) -> tuple[str, ...]:
    """Flags of the healthy table, drafted in another way."""
    return ("--speculative-config", json.dumps(json.loads(HEALTHY) | config), "--max-num-seqs", "256")


def test_block_drafters_below_their_block_are_noted(cli: Any) -> None:
    """A table's K below a DSpark block passes vLLM's own check: it is said, and with adaptive K that K is a budget."""
    found = answer(cli, *drafting(method="dspark", enable_adaptive_verification=True), *NEW)[1]
    assert "smaller Ks of a table pass" in said_about(found, "dspark-block")
    assert "batch size times K is a budget" in said_about(found, "adaptive-verification")


def test_a_k_that_leaves_no_room_to_schedule_is_refused(cli: Any) -> None:
    """A K_max whose draft slots fill the batch of tokens will not start: both flags that matter are named."""
    words = drafting(method="dspark", num_speculative_tokens=16)
    found = answer(cli, *words, "--max-num-batched-tokens", "2048", "--vllm-version", "0.27")[1]
    said = said_about(found, "draft-slots")
    assert "Raise --max-num-batched-tokens, or lower num_speculative_tokens or --max-num-seqs" in said


def test_ks_beyond_the_mtp_depth_are_noted(cli: Any) -> None:
    """A K above the model's own MTP depth must be a multiple of it, which vLLM checks for no K of a table."""
    found = answer(cli, *drafting(method="mtp", model=None), *NEW)[1]
    assert "must be a multiple of it" in said_about(found, "mtp-depth")


def test_says_where_the_capture_limit_ends(cli: Any) -> None:
    """Batch sizes whose tokens exceed the largest capture size are named, with a flag that would cover them."""
    exit_code, found = answer(cli, *flags("capture_over"), *NEW)
    assert exit_code == 0
    text = said_about(found, "graph-miss")
    assert "eager at 86-127" in text
    assert "capture-ceiling-alone" in of(found, "warning")
    assert 127 * 6 in found["graphs"]["exact_sizes"]
    assert {"first": 86, "last": 127, "graph": "NONE"} in found["graphs"]["batch_sizes"]


def test_healthy_table_has_no_findings(cli: Any) -> None:
    """A table like those that dsd-tune emits is accepted without a word."""
    exit_code, found = answer(cli, "--speculative-config", HEALTHY, "--max-num-seqs", "256", *NEW)
    assert (exit_code, found["findings"]) == (0, [])
    assert {span["graph"] for span in found["graphs"]["batch_sizes"]} == {"FULL"}


def test_says_the_same_to_people(cli: Any) -> None:
    """Without --json the findings come with code, reason and mend, then the lookup, and a count as the last line."""
    said = cli("check", *flags("k_over_max"), *NEW)
    lines = said.out.splitlines()
    assert said.code == 1
    assert lines[0] == "vLLM 0.33, model runner v2 (vLLM's choice), max_num_seqs 8"
    assert "error: k-above-max" in lines
    assert any(line.startswith("  -> Raise num_speculative_tokens to 7") for line in lines)
    assert [line.split()[:2] for line in lines if "clamped from 7" in line] == [["1-2", "5"]]
    assert lines[-1].startswith("1 error")


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "m", "--max-num-seqs", "256", "-sc", HEALTHY],
        ["vllm", "serve", "m", "--max_num_seqs=256", f"--speculative_config={HEALTHY}"],
        [f"VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m --max-num-seqs 256 --speculative-config '{HEALTHY}'"],
        ["python", "-m", "vllm.entrypoints.openai.api_server", "--max-num-seqs", "256", "-sc", HEALTHY],
    ],
    ids=["words", "underscores", "quoted", "module"],
)
def test_reads_whole_command_lines(cli: Any, words: list[str]) -> None:
    """A pasted `vllm serve` line is checked as it stands, flags of its own included."""
    exit_code, found = answer(cli, *NEW, *words)
    assert (exit_code, found["findings"], found["max_num_seqs"]) == (0, [], 256)
    assert ks(found) == [(1, 32, 3), (33, 256, 1)]


def test_reads_config_files(cli: Any, tmp_path: Path) -> None:
    """A `--config` file is checked like the flags it stands for, and flags override it."""
    file = tmp_path / "serve.yaml"
    file.write_text(f"model: m\nmax-num-seqs: 128\nspeculative-config: {HEALTHY}\n")
    assert answer(cli, "--config", str(file), *NEW)[1]["max_num_seqs"] == 128
    exit_code, found = answer(cli, *NEW, "--", "vllm", "serve", "--config", str(file), "--max-num-seqs", "256")
    assert (exit_code, found["findings"], found["max_num_seqs"]) == (0, [], 256)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "no speculative config"),
        (["--speculative-config", "{method:eagle3}"], "taken away by a shell"),
        (["--speculative-config", "'{}'"], "quote it once"),
        (["--speculative-config", r"{\"method\":\"mtp\"}"], "Backslashes"),
        (["--speculative-config", '{{"method":"mtp"}}'], "template"),
        (["--speculative-config", "[]"], "no JSON object"),
        (["--speculative-config", HEALTHY, "--max-num-seqs", "0"], "max_num_seqs must be 1 or more, got 0"),
        (["--speculative-config", HEALTHY, "--vllm-version", "new"], "no version of vLLM"),
        (["--speculative-config", HEALTHY, "--model-runner", "v3"], "v3"),
        (["--config", "none.yaml"], "none.yaml cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_input_is_a_usage_error(cli: Any, words: list[str], hint: str) -> None:
    """What cannot be read ends with exit code 2 and one sentence that guesses what happened."""
    assert hint in cli("check", *words).refused(2)


@pytest.mark.parametrize(
    ("content", "hint"), [(b"a: [1\nb: 2\n", "is not YAML (while parsing a flow sequence"), (b"\xff\xfe", "is no text")]
)
def test_a_config_file_that_cannot_be_used_is_refused(cli: Any, tmp_path: Path, content: bytes, hint: str) -> None:
    """What a reader of YAML says over several lines is one line here, and what is no text is named."""
    (tmp_path / "config.yaml").write_bytes(content)
    assert hint in cli("check", "--config", tmp_path / "config.yaml").refused(2)


def test_loads_nothing_heavy() -> None:
    """A check answers without numpy, pandas, torch or vLLM."""
    code = f"""
import sys
import typer
from dsd_tune.cli.check import check
try:
    check(speculative_config={HEALTHY!r}, max_num_seqs=256, vllm_version="0.33")
except typer.Exit:
    loaded = {{name.partition(".")[0] for name in sys.modules}}
    print(sorted(loaded & {{"numpy", "pandas", "scipy", "torch", "vllm"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"when: 2024-99-99", b"- 1"])
def test_a_file_that_is_no_config_is_refused(cli: Any, tmp_path: Path, content: bytes) -> None:
    """Whatever a config file holds instead of flags, the answer is one sentence."""
    path = tmp_path / "serve.yaml"
    path.write_bytes(content)
    cli("check", "--config", path).refused(2)


@pytest.mark.parametrize(
    "words", [["--speculative-config", "[" * 100_000], ["--", "--speculative-config.model", "[" * 100_000]]
)
def test_nesting_without_end_is_refused_or_text(cli: Any, words: list[str]) -> None:
    """JSON too deep to be read is not JSON: refused where an object must stand, else a word; never a traceback."""
    said = cli("check", *words)
    assert said.code in (1, 2)


@pytest.mark.parametrize("field", ["method", "model"])
@pytest.mark.parametrize("value", [{}, [], 5, True, 1.5], ids=repr)
def test_a_name_must_be_a_string(cli: Any, field: str, value: object) -> None:
    """A method or drafter that is no string is refused as vLLM refuses it, by its field."""
    config = json.loads(HEALTHY) | {field: value}
    assert field in cli("check", "--speculative-config", json.dumps(config)).refused(2)


@pytest.mark.parametrize("value", ["3", 3.0, " 3 "], ids=repr)
def test_a_number_in_words_counts(cli: Any, value: object) -> None:
    """vLLM coerces what reads as a whole number, and so does the check."""
    config = json.loads(HEALTHY) | {"num_speculative_tokens": value}
    written, usual = (answer(cli, *NEW, "--speculative-config", text) for text in (json.dumps(config), HEALTHY))
    assert ks(written[1]) == ks(usual[1])


@pytest.mark.parametrize("size", [65537, 10**12, 10**400], ids=["one more", "huge", "no float"])
def test_an_absurd_batch_is_refused(cli: Any, size: int) -> None:
    """A largest batch size that no server runs is refused before anything is looked up, from wherever it comes."""
    cli("check", "--speculative-config", HEALTHY, "--max-num-seqs", size).refused(2)
    cli("check", "--speculative-config", HEALTHY, "--", "--max-num-seqs", size).refused(2)
