"""Options of `validate` that have no effect beside others: refused, since whoever gives them expects one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsd_tune.errors import UsageError

if TYPE_CHECKING:
    import typer

_WITHOUT_EFFECT = {
    "url": ("starts", "port", "policy", "adaptive_verification", "self_check"),
    "self_check": ("policy", "adaptive_verification"),
    "testbed": ("prompts",),
}
"""By option: those that are for nothing beside it."""


def require_heeded(context: typer.Context) -> None:
    """Raise UsageError, naming both, if an option was given that another makes meaningless."""
    for option, others in _WITHOUT_EFFECT.items():
        for other in others:
            if _given(context, option) and _given(context, other):
                raise UsageError(f"{_flag(other)} has no effect beside {_flag(option)}.", "Leave one of them out.")


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
