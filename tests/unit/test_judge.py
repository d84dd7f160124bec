from builders import A_CONDITION
from sweeping import a_shelf, a_sweep, swept

from dsd_tune.cli.judge import fixed_k, judge
from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Phase
from dsd_tune.records.profile import Verdict
from dsd_tune.solve import decide

MARGINAL = CostLaw(critical_tokens=4, slope_s=0.0025)
UNLUCKY = Noise(start_sd=0.05, step_sd=0.01, drift_per_hour=0.0)


def _engine(noise: Noise, acceptance: tuple[float, ...] = (0.62, 0.5), alive_together: int = 8) -> SimulatedEngine:
    return SimulatedEngine(MARGINAL, acceptance, noise=noise, alive_together=alive_together, prompts=256)


def test_luck_that_hides_the_verdict_asks_for_starts() -> None:
    """Where starts scatter by more than there is to gain, another start is asked for, until there are enough."""
    shelf = swept(_engine(UNLUCKY), starts=2)
    fit = Fit(shelf.manifest, shelf.samples())
    assert decide(fit.surface, fit.max_num_seqs).verdict is Verdict.UNCLEAR
    assert judge(shelf.manifest, 0.02)(shelf.samples())[A_CONDITION].starts == 3
    more = swept(_engine(UNLUCKY), starts=2, target=0.02)
    assert Fit(more.manifest, more.samples()).starts > 2


def test_a_sure_verdict_asks_for_no_starts() -> None:
    """Where starts hardly differ, those asked for are enough."""
    shelf = swept(_engine(Noise(start_sd=0.002, step_sd=0.01), acceptance=(0.9, 0.9)), starts=2)
    assert judge(shelf.manifest, 0.02)(shelf.samples())[A_CONDITION].starts == 0


def test_what_cannot_be_fitted_yet_has_nothing_open() -> None:
    """Before both arms were measured there is no judgement, and a condition without blocks has none."""
    shelf = swept(_engine(UNLUCKY), starts=2)
    manifest = a_shelf(_engine(UNLUCKY), contexts=(512, 1024)).manifest
    assert judge(manifest, 0.02)([]) == {}
    assert set(judge(manifest, 0.02)(shelf.samples())) == {Condition(512, 0.0)}


def test_the_fixed_k_does_not_change_half_way() -> None:
    """Once a fixed K was begun with, it stays, whatever the numbers say by then."""
    shelf = swept(_engine(UNLUCKY), starts=2)
    chosen = fixed_k(shelf.manifest, shelf.samples())
    other = 3 - chosen
    a_sweep(_engine(UNLUCKY), shelf).measure_static(other)
    assert {s.cell.k for s in shelf.kept if s.cell.arm is Arm.STATIC} == {other}
    assert {s.phase for s in shelf.kept if s.cell.arm is Arm.STATIC} == {Phase.STATIC}
    assert fixed_k(shelf.manifest, shelf.samples()) == other
