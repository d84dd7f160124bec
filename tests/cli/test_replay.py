import json
from pathlib import Path
from typing import Any

import pytest
from builders import a_profile
from sweeping import swept

from dsd_tune.cli.aim import stated_aim
from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.records.objective import Objective
from dsd_tune.solve import decide
from dsd_tune.storage import formats

TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 4},50,{20 + n % 30}\n" for n in range(60))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep up to 16 requests at once and K=2 that deserves a table."""
    noise = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01)
    engine = SimulatedEngine(
        CostLaw(critical_tokens=8, slope_s=0.003), (0.8, 0.7), noise=noise, max_num_seqs=16, alive_together=8
    )
    shelf = swept(engine, starts=3)
    fit = Fit(shelf.manifest, shelf.samples())
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    formats.write(formats.PROFILE, path, fit.profile(decide(fit.surface, 16), 1.0, "0.1.0"))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Sixty requests."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def _named(out: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(out)["choices"]}


def test_every_choice_is_shown_in_80_columns(cli: Any, profile: Path, trace: Path) -> None:
    """No speculation, each K and the table stand side by side, and the assumption about prompts is said."""
    said = cli("replay", profile, "--trace", trace)
    assert said.code == 0
    for word in ("no speculation", "K=1", "K=2", "table", "Table against", "60 requests", "tokens a second"):
        assert word in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.err == ""


def test_json_is_everything(cli: Any, profile: Path, trace: Path) -> None:
    """With --json stdout is one object, with an interval for each number and a word for each difference."""
    said = cli("replay", profile, "--trace", trace, "--json")
    found = _named(said.out)
    assert list(found) == ["no speculation", "K=1", "K=2", "table"]
    assert found["no speculation"]["against_no_spec"] is None
    assert found["table"]["against_no_spec"]["tpot"]["said"] in {"better", "worse", "same", "cannot tell"}
    assert found["table"]["finished_s"].keys() == {"value", "low", "high"}
    assert json.loads(said.out)["requests"] == 60


def test_the_histogram_is_what_fit_takes(cli: Any, profile: Path, trace: Path, tmp_path: Path) -> None:
    """What --histogram writes is the time of the advised choice, and reads back as --concurrency."""
    path = tmp_path / "histogram.csv"
    said = cli("replay", profile, "--trace", trace, "--histogram", path, "--json")
    assert said.err == f"Decide again for this traffic: dsd-tune fit RUN --concurrency {path}\n"
    found = stated_aim(Objective.TPOT, None, path, None, None).histogram
    assert [weight for _, weight in found] == pytest.approx(_named(said.out)["table"]["seconds_at"], rel=1e-5, abs=1e-9)


def test_a_histogram_is_not_overwritten(cli: Any, profile: Path, trace: Path, tmp_path: Path) -> None:
    """A file that exists stays as it is, unless --force is given."""
    path = tmp_path / "histogram.csv"
    path.write_text("mine")
    assert "exists" in cli("replay", profile, "--trace", trace, "--histogram", path).refused(2)
    assert path.read_text() == "mine"
    assert cli("replay", profile, "--trace", trace, "--histogram", path, "--force").code == 0
    assert path.read_text().startswith("# seconds at each batch size")


def test_rollouts_and_random_arrivals(cli: Any, profile: Path, trace: Path) -> None:
    """Lengths of a trace serve a rollout, whose requests are all there at once, and random arrivals."""
    drained = json.loads(cli("replay", profile, "--rollout", 40, "--lengths", trace, "--json").out)
    random = json.loads(cli("replay", profile, "--poisson", 2, "--num-prompts", 70, "--lengths", trace, "--json").out)
    assert (drained["requests"], random["requests"]) == (40, 70)
    assert drained["choices"][0]["finished_s"]["value"] < random["choices"][0]["finished_s"]["value"]


def test_another_limit_stands_beside_what_is_advised(cli: Any, profile: Path, trace: Path) -> None:
    """With --max-num-seqs every choice has that many places, and what the profile advises has its own."""
    found = _named(cli("replay", profile, "--rollout", 40, "--lengths", trace, "--max-num-seqs", 4, "--json").out)
    assert {name: one["max_num_seqs"] for name, one in found.items()} == {
        "no speculation": 4, "K=1": 4, "K=2": 4, "table": 4, "as measured": 16,
    }  # fmt: skip


def test_another_drafter_gets_a_table_of_its_own(cli: Any, profile: Path, trace: Path) -> None:
    """With --acceptance a drafter that is always right beats what is advised, and one never right is not used."""
    right, wrong = (
        _named(cli("replay", profile, "--trace", trace, "--acceptance", rates, "--json").out)
        for rates in ("1,1", "0,0")
    )
    assert right["table"]["tpot_s"]["mean"]["value"] < right["as measured"]["tpot_s"]["mean"]["value"]
    assert [k for k, seconds in wrong["table"]["seconds_per_k"] if seconds] == [0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "one source of traffic is needed"),
        (["--rollout", "3", "--poisson", "1", "--lengths", "T"], "one source of traffic is needed"),
        (["--rollout", "3"], "--lengths is missing"),
        (["--trace", "T", "--lengths", "T"], "a trace has its own lengths"),
        (["--poisson", "0", "--lengths", "T"], "is no rate"),
        (["--poisson", "nan", "--lengths", "T"], "is no rate"),
        (["--trace", "none.csv"], "none.csv cannot be read"),
        (["--trace", "T", "--timed-trace-sec-multiplier", "0"], "is no factor"),
        (["--trace", "T", "--acceptance", "0.5,0.6"], "is no falling list of shares"),
        (["--trace", "T", "--acceptance", "0.5,x"], "is no falling list of shares"),
        (["--trace", "T", "--acceptance", "0.5"], "ends before position 2"),
        (["--trace", "T", "--max-num-seqs", "17"], "batch sizes end at 16"),
        (["--trace", "T", "--prefill-tokens-per-s", "-1"], "is not known"),
    ],
)
def test_flags_that_make_no_sense(cli: Any, profile: Path, trace: Path, words: list[str], complaint: str) -> None:
    """Contradictions, missing files and impossible numbers are usage errors in one sentence."""
    words = [str(trace) if word == "T" else word for word in words]
    assert complaint in cli("replay", profile, *words).refused(2)


def test_a_profile_of_one_cell_is_refused(cli: Any, trace: Path, tmp_path: Path) -> None:
    """Where no choice was measured from 1 on there is nothing to forecast with."""
    path = tmp_path / "profile.json"
    formats.write(formats.PROFILE, path, a_profile())
    assert cli("replay", path, "--trace", trace).code == 2


def test_a_picture_is_drawn_where_asked(cli: Any, profile: Path, trace: Path, tmp_path: Path) -> None:
    """--png writes one into a folder that it makes, and overwrites none without --force."""
    folder = tmp_path / "new" / "pictures"
    assert cli("replay", profile, "--trace", trace, "--png", folder).code == 0
    assert (folder / "replay.png").read_bytes().startswith(b"\x89PNG")
    said = cli("replay", profile, "--trace", trace, "--png", folder)
    assert (said.code, said.out) == (2, "")
    assert "replay.png exists" in said.err
    assert cli("replay", profile, "--trace", trace, "--png", folder, "--force").code == 0
