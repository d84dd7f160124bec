"""How bodies of older files become those of the next version. Each step is written once and never changed again."""

from __future__ import annotations

from typing import Any


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


def _three(variance: dict[str, float]) -> dict[str, float]:
    """The first profiles did not tell the machine's drift from the scatter of blocks."""
    if "within_start" not in variance:
        return variance
    return {"between_starts": variance["between_starts"], "drift": 0.0, "between_blocks": variance["within_start"]}


def _measured_around(after: int, sizes: list[int]) -> dict[str, int]:
    left = max((size for size in sizes if size <= after), default=1)
    return {"left_measured": left, "right_measured": min((size for size in sizes if size > after), default=after + 1)}
