"""How bodies of older files become those of the next version. Each step is written once and never changed again."""

from __future__ import annotations

from typing import Any

from dsd_tune.records.run import SweepRequest


def manifest_2(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 1: one context and one temperature, which the environment told too."""
    return _several_conditions(body) if isinstance(body, dict) else body


def sample_2(line: Any, request: SweepRequest) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 1: one condition, arms told by the number of their slot, and each round a visit of its own."""
    if not isinstance(line, dict) or not all(isinstance(body, dict) for body in line.values()):
        return line
    condition = {"context": request.contexts[0], "temperature": request.temperatures[0]}
    return {word: body | _added(word, body, 2 * request.starts, condition) for word, body in line.items()}


def _added(word: str, body: dict[str, Any], main_slots: int, condition: dict[str, Any]) -> dict[str, Any]:
    added = {
        "condition": condition,
        "phase": "main" if body.get("slot", 0) < main_slots else "static",
        "stop": body.get("cell", {}).get("batch_size"),
        "repetition": body.get("round"),
        "round": 0,
    }
    return added | {"machine": None} if word == "block" else added


def profile_4(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 3: one context and one temperature, which the environment told too."""
    return _several_conditions(body) if isinstance(body, dict) and body.get("request") else body


def profile_5(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 4: warnings without codes, and comparisons that did not say what they could have told."""
    if not isinstance(body, dict) or not isinstance(body.get("decision"), dict):
        return body
    compared = ("table_gain", "fixed_gain", "table_over_fixed")
    decision = body["decision"]
    return body | {
        "cells": [cell | {"cv": None} for cell in body["cells"]],
        "k0_tax": [tax | {"share": _detectable(tax["share"])} for tax in body["k0_tax"]],
        "variance": body["variance"] | {"trend": None, "limit": None},
        "decision": decision | {name: _detectable(decision[name]) for name in compared},
        "warnings": [_coded(said) for said in body["warnings"]],
    }


def _detectable(interval: dict[str, float] | None) -> dict[str, float] | None:
    """What normal errors of that interval would have told: 1.96 + 0.84 standard errors."""
    if interval is None:
        return None
    return interval | {"detectable": (interval["high"] - interval["low"]) / 2 * (1.96 + 0.84) / 1.96}


def _coded(said: str) -> dict[str, object]:
    return {"code": "uncoded", "cells": [], "said": said, "hint": "Fit the run again: dsd-tune fit RUN."}


def manifest_3(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 2: nobody asked for the versions below vLLM, and nothing was stated instead of measured."""
    return _nothing_stated(body) if isinstance(body, dict) else body


def profile_6(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 5: as manifest 3; and parts for each condition, and what acceptance would pay, were not told."""
    if not isinstance(body, dict) or not isinstance(body.get("cells"), list):
        return body
    told = body | {"conditions": [], "cells": [cell | {"break_even": None} for cell in body["cells"]]}
    return _nothing_stated(told) if body.get("request") else told


def _nothing_stated(body: dict[str, Any]) -> dict[str, Any]:
    stated: dict[str, Any] = {"load_format": "auto", "synthetic_acceptance": []}
    unknown: dict[str, Any] = {"torch_version": "", "cuda_version": "", "preloaded": [], "power_limit_w": None}
    request, environment = body.get("request") or {}, body.get("environment") or {}
    return body | {"request": request | stated, "environment": environment | stated | unknown}


def _several_conditions(body: dict[str, Any]) -> dict[str, Any]:
    request, environment = dict(body.get("request", {})), dict(body.get("environment", {}))
    environment.pop("temperature", None)
    for one, several in (("max_context", "contexts"), ("temperature", "temperatures")):
        if one in request:
            request[several] = [request.pop(one)]
    return body | {"request": request, "environment": environment}


def profile_2(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 1: a sweep with a table, whose boundaries lie between measured batch sizes."""
    if not isinstance(body, dict) or not isinstance(body.get("decision"), dict):
        return body
    decision = body["decision"]
    sizes = body.get("request", {}).get("batch_sizes", [])
    boundaries = [boundary | _measured_around(boundary["after"], sizes) for boundary in decision["boundaries"]]
    new = {
        "max_num_seqs": decision["table"]["ranges"][-1]["last"],
        "confirmed_over_fixed": None,
        "boundaries": boundaries,
        "objective": "TPOT",
        "remarks": [],
    }
    return body | {"facts": [], "held_out": None, "decision": decision | new, "variance": _three(body["variance"])}


def profile_3(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 2: nobody asked what graphs the table would run, nor what the datasheet says."""
    if not isinstance(body, dict) or not isinstance(body.get("decision"), dict):
        return body
    return body | {"decision": body["decision"] | {"capture_sizes": []}, "roofline_tokens": None}


def profile_7(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 6: nobody had asked servers."""
    return body | {"validation": None} if isinstance(body, dict) else body


def profile_8(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 7: nobody told which other Ks the table could have as well, in no condition."""
    if not isinstance(body, dict) or not isinstance(body.get("conditions"), list):
        return body
    return _without_rivals(body) | {"conditions": [_without_rivals(each) for each in body["conditions"]]}


def _without_rivals(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    if not isinstance(body, dict) or not isinstance(body.get("decision"), dict):
        return body
    return body | {"decision": body["decision"] | {"rivals": []}}


def load_2(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 1: nobody had kept the server's counts, and texts were all of one length.

    A line that was added since says more, and is left alone.
    """
    keys = ("output_tokens", "requests", "failed")
    if not isinstance(body, dict) or [type(body.get(key)) for key in keys] != [int, int, int]:
        return body
    tokens, answered = body["output_tokens"], body["requests"] - body["failed"]
    old = {key: value for key, value in body.items() if key != "output_tokens"}
    lengths = [tokens // answered] * answered if answered > 0 else []
    return old | {"output_lens": lengths, "draft_tokens": None, "accepted_tokens": None}


def load_3(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 2: nobody had kept the lengths of prompts, nor how many drafts were made.

    A line that was added since says more, and is left alone.
    """
    return {"input_lens": None, "drafts": None} | body if isinstance(body, dict) else body


def load_4(body: Any) -> Any:  # noqa: ANN401 (JSON, checked when it is decoded)
    """From version 3: nobody had asked which vLLM it was. A line that was added since says more, and is left alone."""
    return {"vllm_version": None} | body if isinstance(body, dict) else body


def _three(variance: dict[str, float]) -> dict[str, float]:
    """The first profiles did not tell the machine's drift from the scatter of blocks."""
    if "within_start" not in variance:
        return variance
    return {"between_starts": variance["between_starts"], "drift": 0.0, "between_blocks": variance["within_start"]}


def _measured_around(after: int, sizes: list[int]) -> dict[str, int]:
    left = max((size for size in sizes if size <= after), default=1)
    return {"left_measured": left, "right_measured": min((size for size in sizes if size > after), default=after + 1)}
