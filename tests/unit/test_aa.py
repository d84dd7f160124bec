"""Two arms that are the same engine must come out the same."""

import numpy as np
import pytest
from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.records.profile import Profile
from dsd_tune.solve import decide

SAME = CostLaw(tax_s=0.0, tax_request_s=0.0)
"""At K=0 the table's engine is `no_spec` to the last bit."""


def _profile(seed: int, alive_together: int) -> Profile:
    noise = Noise(start_sd=0.02, drift_per_hour=0.1, step_sd=0.03)
    engine = SimulatedEngine(SAME, (0.7,), noise=noise, seed=seed, max_num_seqs=16, alive_together=alive_together)
    shelf = swept(engine, starts=3, rounds=2, steps=8, ks=(0, 1), seed=seed)
    fit = Fit(shelf.manifest, shelf.samples())
    return fit.profile(decide(fit.surface, 16), 0.0, "0.1.0")


@pytest.fixture(autouse=True, scope="module")
def _few_refits() -> object:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsd_tune.model.cost._REFITS", 5)
        yield


@pytest.mark.parametrize("alive_together", [8, 1])
def test_the_same_engine_twice_is_the_same(alive_together: int) -> None:
    """In most of 20 sweeps the tax of K=0, which is none, has an interval that covers zero."""
    taxes = [tax.share for seed in range(20) for tax in _profile(seed, alive_together).k0_tax]
    assert np.mean([share.low <= 0 <= share.high for share in taxes]) >= 0.85
    assert np.mean([abs(share.value) < share.detectable for share in taxes]) >= 0.95
