"""What a fresh interpreter has loaded: the one check that also sees parent packages and lazy imports."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from builders import a_profile

from dsd_tune.storage import formats

HEAVY = {"matplotlib", "optuna", "pandas", "torch", "vllm"}


def newly_loaded(code: str) -> set[str]:
    """Names that `code` adds to `sys.modules` in an interpreter of its own, without a profile to apply."""
    probe = (
        f"import json, sys; at_start = set(sys.modules)\n{code}\nprint(json.dumps(list(set(sys.modules) - at_start)))"
    )
    env = {name: value for name, value in os.environ.items() if name != "DSD_TUNE_PROFILE"}
    done = subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def top_level(modules: set[str]) -> set[str]:
    """The packages that the modules belong to."""
    return {name.partition(".")[0] for name in modules}


def modules_of(package: str) -> list[str]:
    """A package and all that lies in it."""
    path = import_module(package).__path__
    return [package, *(found.name for found in pkgutil.walk_packages(path, f"{package}."))]


@pytest.mark.parametrize(
    "command",
    [
        [],
        *(
            [name]
            for name in ("sweep", "plan", "fit", "show", "report", "emit-config", "check", "replay", "diff", "watch")
        ),
    ],
    ids=lambda words: " ".join(words) or "bare",
)
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    """`--help` answers before vLLM, torch, pandas, optuna or matplotlib is loaded."""
    loaded = newly_loaded(
        "from dsd_tune.cli.app import main\n"
        f"sys.argv = ['dsd-tune', *{command!r}, '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code"
    )
    assert "dsd_tune.cli.app" in loaded
    assert top_level(loaded) & HEAVY == set()


def test_emit_config_loads_nothing_heavy(tmp_path: Path) -> None:
    """A profile is emitted, and the versions of vLLM are judged, without numpy, YAML or anything heavier."""
    path = tmp_path / "profile.json"
    formats.write(formats.PROFILE, path, a_profile())
    loaded = newly_loaded(
        "from contextlib import redirect_stdout\n"
        "from dsd_tune.cli.app import main\n"
        f"sys.argv = ['dsd-tune', 'emit-config', {str(path)!r}, '--format', 'yaml']\n"
        "with redirect_stdout(sys.stderr):\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code"
    )
    assert "dsd_tune.check.obedience" in loaded
    assert top_level(loaded) & (HEAVY | {"numpy", "scipy", "yaml"}) == set()


def test_package_loads_nothing() -> None:
    """Importing `dsd_tune` loads that one empty module."""
    assert newly_loaded("import dsd_tune") == {"dsd_tune"}


def test_idle_plugin_loads_nothing() -> None:
    """Without a profile in the environment the plugin costs every vLLM process its own file and no more."""
    loaded = newly_loaded("from dsd_tune.runtime.plugin import register\nregister()")
    assert loaded - {"__future__"} == {"dsd_tune", "dsd_tune.runtime", "dsd_tune.runtime.plugin"}


@pytest.mark.parametrize("package", ["dsd_tune.runtime", "dsd_tune.storage", "dsd_tune.records"])
def test_serving_ring_is_standard_library(package: str) -> None:
    """What may run inside somebody's server loads the standard library and itself."""
    loaded = newly_loaded("\n".join(f"import {module}" for module in modules_of(package)))
    assert package in loaded
    assert top_level(loaded) - set(sys.stdlib_module_names) == {"dsd_tune"}


def test_vllm_finds_the_plugin() -> None:
    """The installed entry point, by which vLLM finds its plugins, leads to `register`."""
    (found,) = entry_points(group="vllm.general_plugins", name="dsd-tune")
    assert found.load() is import_module("dsd_tune.runtime.plugin").register
