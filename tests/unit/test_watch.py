"""Two readings of a server's metrics, and what follows from them."""

from __future__ import annotations

import pytest

from dsd_tune.engines.scrape import Scrape
from dsd_tune.errors import EnvironmentUnfit, UsageError
from dsd_tune.watch import watched


def metrics(steps: int, *, accepted: int = 0, state: str = "applied") -> Scrape:
    """A server after that many steps at K=1 and batch size 3-4, and a tenth of them at K=0."""
    labels = 'engine="0",model_name="a \\"b\\", c"'
    states = "\n".join(
        f'dsd_tune:state{{{labels},state="{s}"}} {float(s == state)}' for s in ("applied", "drifted", "refused")
    )
    return Scrape.parse(
        f"""# TYPE dsd_tune:state gauge
{states}
dsd_tune:k_switches_total{{{labels}}} {steps / 50}
dsd_tune:steps_total{{{labels},batch_size="9-16",k="0"}} {steps / 10}
dsd_tune:step_seconds_total{{{labels},batch_size="9-16",k="0"}} {steps / 10 * 0.05}
dsd_tune:steps_total{{{labels},batch_size="3-4",k="1"}} {steps}
dsd_tune:step_seconds_total{{{labels},batch_size="3-4",k="1"}} {steps * 0.02}
dsd_tune:drafted_total{{{labels},position="1"}} {4 * steps}
dsd_tune:accepted_total{{{labels},position="1"}} {accepted}
dsd_tune:expected_accepted_total{{{labels}}} {2 * steps}
dsd_tune:compared_step_seconds_total{{{labels}}} 0
dsd_tune:predicted_step_seconds_total{{{labels}}} 0
"""
    )


def test_what_happened_in_between_counts() -> None:
    """Steps before the first look do not, and a ratio needs something to compare with."""
    seen = watched(metrics(1000, accepted=100), metrics(1500, accepted=1100))
    assert seen.steps == {("3-4", 1): 500, ("9-16", 0): 50}
    assert seen.step_s == pytest.approx({("3-4", 1): 0.02, ("9-16", 0): 0.05})
    assert (seen.switches, seen.acceptance, seen.accepted, seen.step_time) == (10, {1: 0.5}, 1.0, None)


@pytest.mark.parametrize(
    ("state", "steps", "code", "advice"),
    [
        ("applied", 500, 0, "Nothing to do"),
        ("applied", 50, 5, "Watch it under load"),
        ("drifted", 500, 6, "Sweep again"),
        ("drifted", 50, 5, "Watch it under load"),
        ("refused", 0, 6, "See the server's log"),
    ],
)
def test_the_exit_code_serves_cron(state: str, steps: int, code: int, advice: str) -> None:
    """0 the profile holds, 5 too few steps, 6 it does not hold; one sentence says what to do."""
    seen = watched(metrics(0), metrics(steps, state=state))
    assert seen.exit_code == code
    assert advice in seen.advice


def test_a_server_without_the_runtime_is_told_how_to_get_it() -> None:
    """The message names the variable."""
    with pytest.raises(EnvironmentUnfit, match="DSD_TUNE_PROFILE"):
        watched(Scrape({}), Scrape.parse('vllm:num_requests_running{engine="0"} 0'))


def test_a_restart_in_between_is_noticed() -> None:
    """Counters that fell belong to another server."""
    with pytest.raises(EnvironmentUnfit, match="started anew"):
        watched(metrics(100), metrics(50))


def test_only_http_is_asked() -> None:
    """Other schemes are refused before anything is opened."""
    with pytest.raises(UsageError, match=r"file:///etc/passwd is no address of a server\. Write it as http"):
        Scrape.fetch("file:///etc/passwd")
