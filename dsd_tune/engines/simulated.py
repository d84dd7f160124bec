"""An engine with a known cost law and known acceptance. It computes its answers from a seed, and can tell the truth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.protocol import Measured
from dsd_tune.engines.simulated_request import SimulatedRequest
from dsd_tune.engines.window import start_lengths
from dsd_tune.errors import EngineFailed
from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment, GraphUse
from dsd_tune.records.measurement import Arm, Cell

_PROMPT_TOKENS = 32

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Noise:
    """What stands between the truth and a measurement; all spreads are relative.

    `start_sd` is the luck of an engine start, kept for its life. `drift_per_hour` slows everything down with
    the virtual clock. `step_sd` is one step's spread, of which the share `correlation` is carried over to the
    next. `outlier_share` of the steps take `outlier_factor` times as long. `broken_share` of them break the rules
    and are not kept. A prompt's chance to have a draft accepted is beta-distributed around the known one, with
    `prompt_concentration` as the sum of its two parameters.
    """

    start_sd: float = 0.02
    drift_per_hour: float = 0.05
    step_sd: float = 0.03
    correlation: float = 0.5
    outlier_share: float = 0.01
    outlier_factor: float = 3.0
    broken_share: float = 0.02
    prompt_concentration: float = 8.0

    def __post_init__(self) -> None:
        if not (0 <= self.correlation < 1 and 0 <= self.outlier_share <= 1 and 0 <= self.broken_share < 1):
            raise ValueError(f"shares and correlations lie between 0 and 1, got {self}")
        if min(self.start_sd, self.step_sd) < 0 or min(self.outlier_factor, self.prompt_concentration) <= 0:
            raise ValueError(f"spreads cannot be negative, nor factors 0, got {self}")


NO_NOISE = Noise(
    start_sd=0.0, drift_per_hour=0.0, step_sd=0.0, outlier_share=0.0, broken_share=0.0, prompt_concentration=1e9
)
"""Step times are the truth to the last bit; acceptance is still drawn, token by token."""


class SimulatedEngine:
    """Starts engines that obey `law`, with `acceptance[i]` the chance of position i once all before it were accepted.

    `contexts` are all that blocks ask for, where there are several. Cells in `failing_cells` end the engine that
    measures them; starts numbered in `failing_starts`, from 0, do not come up. More than `alive_together` do not fit.
    """

    def __init__(
        self,
        law: CostLaw | None = None,
        acceptance: tuple[float, ...] = (0.7, 0.6, 0.5, 0.45),
        *,
        noise: Noise | None = None,
        seed: int = 0,
        max_num_seqs: int = 64,
        max_context: int = 1024,
        contexts: tuple[int, ...] = (),
        prompts: int = 256,
        alive_together: int = 1,
        start_takes_s: float = 20.0,
        failing_cells: Iterable[Cell] = (),
        failing_starts: Iterable[int] = (),
    ) -> None:
        if not acceptance or any(not 0 <= rate <= 1 for rate in acceptance):
            raise ValueError(f"acceptance needs a rate between 0 and 1 for each position, got {acceptance}")
        if prompts < max_num_seqs:
            raise ValueError(f"{prompts} prompts are too few to decode {max_num_seqs} different ones at once")
        self.law = law or CostLaw()
        self.acceptance = acceptance
        self.noise = noise or Noise()
        self.seed = seed
        self.max_num_seqs = max_num_seqs
        self.max_context = max_context
        self.contexts = contexts or (max_context,)
        self.prompts = prompts
        self.failing_cells = frozenset(failing_cells)
        self.failing_starts = frozenset(failing_starts)
        self._alive_together = alive_together
        self._start_takes_s = start_takes_s
        self._starts = 0
        self._alive: set[SimulatedProcess] = set()
        self._now_s = 0.0

    @property
    def alive_together(self) -> int:
        """See `Engine.alive_together`."""
        return self._alive_together

    @property
    def k_max(self) -> int:
        """The largest K that acceptance is known for."""
        return len(self.acceptance)

    def now_s(self) -> float:
        """The virtual clock: seconds since the first start, moved by starts and steps alone."""
        return self._now_s

    def pass_s(self, seconds: float) -> None:
        """Move the virtual clock on."""
        self._now_s += seconds

    def true_step_s(self, cell: Cell, context: int = 0) -> float:
        """Step time of a cell at a condition's `context`, without luck, drift or noise, in seconds."""
        return self.law.step_s(cell, context)

    def true_tokens_per_step(self, k: int) -> float:
        """Acceptance length at K=`k`, over all prompts there could be."""
        if not 0 <= k <= self.k_max:
            raise ValueError(f"acceptance is known for K from 0 to {self.k_max}, not for {k}")
        return 1.0 + sum(math.prod(self.acceptance[: position + 1]) for position in range(k))

    def true_tpot_s(self, cell: Cell, context: int = 0) -> float:
        """Time per output token of a cell at a condition's `context`, without luck, drift or noise, in seconds."""
        return self.true_step_s(cell, context) / self.true_tokens_per_step(cell.k)

    def describe(self) -> Environment:
        """See `Engine.describe`. Another law, acceptance or seed of prompts is another model, drafter or data set."""
        return Environment(
            model="simulated",
            model_digest=_digest(self.law),
            drafter="simulated",
            drafter_digest=_digest(self.acceptance),
            method="simulated",
            vllm_version="none",
            runner="simulated",
            device="simulated",
            device_name="simulated",
            driver="none",
            threads=1,
            dtype="none",
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            max_num_seqs=self.max_num_seqs,
            max_model_len=self.max_context,
            k_max=self.k_max,
            async_scheduling=False,
            graphs_no_spec=self._graphs(1.0),
            graphs_dsd=self._graphs(self.law.graphs_dsd),
            graphs_static=self._graphs(self.law.graphs_static),
            prompts_digest=_digest((self.prompts, self.seed)),
            engine_flags=(),
            torch_version="",
            cuda_version="",
            preloaded=(),
            power_limit_w=None,
            load_format="auto",
            synthetic_acceptance=(),
        )

    def start(self, arm: Arm, fixed_k: int | None = None) -> SimulatedProcess:
        """See `Engine.start`.

        Raises:
            ValueError: a fixed K that does not go with the arm.
        """
        if (arm is Arm.STATIC) != (fixed_k is not None):
            raise ValueError(f"arm {arm} does not go with a fixed K of {fixed_k}")
        number, self._starts = self._starts, self._starts + 1
        self.pass_s(self._start_takes_s)
        if number in self.failing_starts:
            raise EngineFailed(f"Start {number} was planned to fail.", "Take it out of failing_starts.")
        if len(self._alive) >= self.alive_together:
            raise EngineFailed(f"{len(self._alive)} engines are alive and no more fit.", "Close one first.")
        process = SimulatedProcess(self, arm, fixed_k, number)
        self._alive.add(process)
        return process

    def release(self, process: SimulatedProcess) -> None:
        """Free the place of an engine that was closed."""
        self._alive.discard(process)

    def prompt_acceptance(self, prompt: int) -> _Floats:
        """One prompt's own conditional acceptance for each position; the same in every start."""
        rates = np.clip(self.acceptance, 1e-9, 1 - 1e-9)
        concentration = self.noise.prompt_concentration
        random = np.random.default_rng([self.seed, 1, prompt])
        return np.asarray(random.beta(rates * concentration, (1 - rates) * concentration))

    def _graphs(self, factor: float) -> GraphUse:
        return GraphUse(
            mode="NONE" if math.isclose(factor, 1.0) else f"COSTS_{factor:g}", capture_sizes=self.law.capture_sizes
        )


class SimulatedProcess:
    """One start of a simulated engine: its own luck, its own texts, and the shared virtual clock."""

    def __init__(self, engine: SimulatedEngine, arm: Arm, fixed_k: int | None, number: int) -> None:
        self._engine = engine
        self._arm = arm
        self._fixed_k = fixed_k
        self._random = np.random.default_rng([engine.seed, 0, number])
        self._luck = math.exp(engine.noise.start_sd * self._random.standard_normal())
        self._order = self._random.permutation(engine.prompts)
        self._taken = 0
        self._requests: list[SimulatedRequest] = []
        self._closed = False

    def measure(self, batch_size: int, k: int, *, condition: Condition, steps: int, settle: int) -> Measured:
        """See `RunningEngine.measure`. `steps_run` counts from after `settle`; a temperature changes nothing."""
        cell = self._cell(batch_size, k)
        if condition.context > self._engine.max_context:
            raise ValueError(f"this engine holds {self._engine.max_context} tokens, not {condition.context}")
        self._fill(cell, condition, steps)
        truth_s = self._engine.true_step_s(cell, condition.context)
        self._engine.pass_s(settle * truth_s)
        step_s = self._step_times(truth_s, steps)
        broken = int(self._random.negative_binomial(steps, 1 - self._engine.noise.broken_share))
        self._engine.pass_s(float(step_s.sum()) + broken * truth_s)
        before = [request.context for request in self._requests]
        prompts = tuple(request.decode(k, steps, self._random) for request in self._requests)
        after = [request.context for request in self._requests]
        return Measured(tuple(map(float, step_s)), steps + broken, (min(before), max(after)), prompts)

    def close(self) -> None:
        """See `RunningEngine.close`."""
        self._closed = True
        self._engine.release(self)

    def _cell(self, batch_size: int, k: int) -> Cell:
        """The cell asked for, if this engine is alive and can run it."""
        if self._closed:
            raise EngineFailed("The simulated engine is closed.", "Start another one.")
        possible = range(self._engine.k_max + 1) if self._arm is Arm.DSD else [self._fixed_k or 0]
        if k not in possible or not 1 <= batch_size <= self._engine.max_num_seqs:
            raise ValueError(f"this engine of arm {self._arm} cannot run B={batch_size} K={k}")
        cell = Cell(self._arm, batch_size, k)
        if cell in self._engine.failing_cells:
            self.close()
            raise EngineFailed(f"{cell} was planned to fail.", "Take it out of failing_cells.")
        return cell

    def _fill(self, cell: Cell, condition: Condition, steps: int) -> None:
        """Hold one request for each place in the batch, with a fresh text where the old one would end too soon.

        Texts end after a number of steps, not of tokens: otherwise prompts with poor acceptance would be seen more
        often than others, and the truth would depend on the plan.
        """
        begins_at = max(_PROMPT_TOKENS, start_lengths(condition.context, self._engine.contexts).least)
        text_steps = max(steps, (condition.context - begins_at) // (self._engine.k_max + 1))
        kept = [r for r in self._requests if r.condition == condition and r.steps + steps <= text_steps]
        self._requests = kept[: cell.batch_size]
        while len(self._requests) < cell.batch_size:
            prompt = self._next_prompt()
            acceptance = self._engine.prompt_acceptance(prompt)
            self._requests.append(SimulatedRequest(prompt, acceptance, condition, begins_at))

    def _next_prompt(self) -> int:
        """Prompts come round in this start's own order; those being decoded are passed over."""
        decoding = {request.prompt for request in self._requests}
        while True:
            prompt = int(self._order[self._taken % len(self._order)])
            self._taken += 1
            if prompt not in decoding:
                return prompt

    def _step_times(self, truth_s: float, steps: int) -> _Floats:
        noise = self._engine.noise
        drift = math.exp(noise.drift_per_hour * self._engine.now_s() / 3600)
        spread = np.exp(noise.step_sd * self._correlated(steps))
        outliers = np.where(self._random.random(steps) < noise.outlier_share, noise.outlier_factor, 1.0)
        return np.asarray(truth_s * self._luck * drift * spread * outliers)

    def _correlated(self, steps: int) -> _Floats:
        """A first-order autoregression of unit variance."""
        carried = self._engine.noise.correlation
        fresh = self._random.standard_normal(steps)
        fresh[1:] *= math.sqrt(1 - carried**2)
        return np.array(list(accumulate(fresh, lambda last, new: carried * last + new)))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
