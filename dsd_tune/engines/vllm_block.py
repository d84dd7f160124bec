"""Measures one block: fill the batch, switch K, let it settle, keep the steps that follow the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsd_tune.engines.protocol import Measured
from dsd_tune.engines.vllm_pool import RequestPool
from dsd_tune.engines.vllm_steps import Step, Stepper
from dsd_tune.engines.vllm_tally import Tally
from dsd_tune.engines.vllm_wire import BlockOrder
from dsd_tune.errors import EngineFailed
from dsd_tune.records.machine import MachineState


@dataclass(frozen=True, slots=True)
class Rig:
    """A running engine as the measuring sees it.

    `set_k` switches K from the next step on. `lag` is how many steps more than a synchronous engine need passing
    before a new K shows. `k_max` bounds the growth of a sequence in every arm alike, so that all arms replace requests
    at one length. `chunk` is the most tokens that a step prefills. `machine` reads how the machine is doing.
    `counts_drafts` is whether drafts say anything about the drafter.
    """

    stepper: Stepper
    pool: RequestPool
    set_k: Callable[[int], None]
    lag: int
    k_max: int
    fewer_drafts: bool
    chunk: int
    machine: Callable[[], MachineState]
    counts_drafts: bool


def measure(rig: Rig, order: BlockOrder) -> Measured:
    """One block; see `RunningEngine.measure`.

    Raises:
        EngineFailed: the batch never filled, or no step followed the rules.
    """
    settle = order.settle + rig.lag
    rig.pool.prepare(order.condition, order.batch_size, growth=(settle + order.steps) * (rig.k_max + 1))
    _fill(rig, order.batch_size)
    rig.set_k(order.k)
    rig.stepper.start_clock()
    for _ in range(settle):
        rig.pool.observe(rig.stepper.step())
    return _collect(rig, order)


def _fill(rig: Rig, batch_size: int) -> None:
    """Step until every request is past its prompt. A long prompt may take several steps."""
    for _ in range(100 + 4 * batch_size + 4 * rig.pool.to_prefill // rig.chunk):
        if len(rig.pool.decoding) == batch_size:
            return
        rig.pool.observe(rig.stepper.step())
    raise EngineFailed(
        f"The engine does not hold {batch_size} requests at once.", "Give it more KV cache or measure smaller batches."
    )


def _collect(rig: Rig, order: BlockOrder) -> Measured:
    kept: list[float] = []
    lengths: list[int] = []
    tally = Tally(order.k)
    tries = 4 * order.steps + 20
    steps_run = 0
    while len(kept) < order.steps and steps_run < tries:
        decoding = rig.pool.decoding
        step = rig.stepper.step()
        steps_run += 1
        keep = step.follows_rules(order.batch_size, order.k, fewer_drafts=rig.fewer_drafts, decoding=decoding)
        if keep:
            kept.append(step.took_s)
            _count(rig.pool, step, tally)
        rig.pool.observe(step)
        if keep:
            lengths += rig.pool.lengths
    if not kept:
        raise EngineFailed(
            f"None of {tries} steps ran {order.batch_size} decoding requests with K={order.k}.",
            "This engine does not follow K, or its KV cache is too small for the batch.",
        )
    counts = tally.counts() if rig.counts_drafts else ()
    return Measured(tuple(kept), steps_run, (min(lengths), max(lengths)), counts, rig.machine())


def _count(pool: RequestPool, step: Step, tally: Tally) -> None:
    """Only requests still inside their own text: what a model says after its end is not what users get."""
    for key, tokens in step.new_tokens.items():
        request = pool.live.get(key)
        if request is not None and tokens and not request.ended:
            tally.add(
                request.prompt,
                drafted=step.drafted.get(key, 0),
                new_tokens=len(tokens),
                before_eos=pool.before_eos(tokens),
            )
