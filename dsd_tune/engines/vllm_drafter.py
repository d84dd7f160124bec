"""Checks model and drafter folders before vLLM spends a minute on finding out. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsd_tune.errors import EnvironmentUnfit, UsageError
from dsd_tune.storage.fingerprint import local_folder


def check_models(model: str, speculative_config: Mapping[str, object]) -> None:
    """Refuse folders that do not exist and a drafter made for another target.

    Raises:
        UsageError: a folder is named that is not there or holds no model.
        EnvironmentUnfit: the drafter's hidden size or vocabulary is not the target's.
    """
    target = _config(model, "model")
    drafter = speculative_config.get("model")
    if drafter is None:
        return
    config = _config(str(drafter), "drafter")
    if _reads_hidden_states(speculative_config, config):
        _require_equal("hidden_size", "target_hidden_size", model, target, str(drafter), config)
    if not speculative_config.get("use_heterogeneous_vocab"):
        _require_equal("vocab_size", "target_vocab_size", model, target, str(drafter), config)


def _config(model: str, what: str) -> Mapping[str, Any]:
    """The text model's config.json; empty for a model that is not on this machine, which vLLM will fetch."""
    path = Path(model).expanduser()
    if not path.exists() and (model.startswith(("/", ".", "~")) or model.count("/") != 1):
        raise UsageError(f"There is no {what} folder {model}.", "Name a folder with a model or a model on a hub.")
    folder = local_folder(model)
    if folder is None or folder.is_file():
        return {}
    file = folder / "config.json"
    if not file.is_file():
        raise UsageError(f"The {what} folder {model} has no config.json.", "Name a folder in Hugging Face's format.")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file} is no valid JSON: {error}.", "Repair it or fetch the model again.") from error
    return {**config, **config.get("text_config", {})}


def _reads_hidden_states(speculative_config: Mapping[str, object], config: Mapping[str, Any]) -> bool:
    """EAGLE's kind takes the target's hidden states as they are."""
    named = f"{speculative_config.get('method', '')} {' '.join(config.get('architectures') or ())}".lower()
    return "eagle" in named


def _require_equal(
    key: str, override: str, model: str, target: Mapping[str, Any], drafter: str, config: Mapping[str, Any]
) -> None:
    wanted, given = target.get(key), config.get(override, config.get(key))
    if wanted is not None and given is not None and wanted != given:
        raise EnvironmentUnfit(
            f"The drafter {drafter} has {key} {given}, but {model} has {wanted}.",
            "Use a drafter that was trained for this model.",
        )
