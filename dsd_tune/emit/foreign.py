"""What holds for a table of ours in any server that is not vLLM."""

from __future__ import annotations

MEASURED_ELSEWHERE = "This was measured in vLLM; step times differ here, so compare with a fixed length and with none"
