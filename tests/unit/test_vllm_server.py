"""A `vllm serve` of our own, with a script in its place: its counters, its port, its end."""

import socket
import sys
from pathlib import Path

import pytest
from ports import free_port
from processes import ended

from dsd_tune.engines.vllm_server import DraftCounters, VllmServer, parse_draft_counters, require_free_port, vllm_server
from dsd_tune.errors import EngineFailed, UsageError

METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m {x}"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 5.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3.2e+01
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 999.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",position="0"} 1.7e+09
vllm:num_requests_running{engine="0"} 3.0
"""


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a script be the `vllm` command beside this Python."""
    command = folder / "vllm"
    command.write_text(script)
    command.chmod(0o755)
    (folder / "python").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_counters_are_summed_over_engines() -> None:
    """Each counter is the sum over engines, without creation times and per-position counts."""
    assert parse_draft_counters(METRICS) == DraftCounters(drafts=15, draft_tokens=32, accepted_tokens=12)


def test_a_server_without_speculation_has_no_drafts() -> None:
    """Where vLLM exports no such counter, nothing was drafted."""
    assert parse_draft_counters("vllm:num_requests_running 3.0\n") == DraftCounters()


def test_counters_between_two_readings() -> None:
    """What a benchmark caused is the difference of the readings around it."""
    assert DraftCounters(9, 30, 12).since(DraftCounters(4, 10, 2)) == DraftCounters(5, 20, 10)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """A port that somebody else listens on is an error that names it, before a server is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=str(port)), vllm_server("m", [], port, tmp_path / "log"):
            pass
    assert not (tmp_path / "log").exists()
    require_free_port(port)


def test_a_server_that_ends_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that gives up at once is reported with its last words instead of waiting for its health."""
    put_in_place(tmp_path, monkeypatch, "#!/bin/sh\necho 'ValueError: no such model'\nexit 1\n")
    with pytest.raises(EngineFailed, match="no such model"), vllm_server("m", [], free_port(), tmp_path / "log"):
        pass


@pytest.mark.parametrize("name", ["DSD_TUNE_PROFILE", "VLLM_API_KEY"])
def test_what_is_meant_for_other_servers_is_left_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile or a key of the caller's environment is not what this server was asked for."""
    put_in_place(tmp_path, monkeypatch, f'#!/bin/sh\necho "{name}=<${name}>"\nexit 1\n')
    monkeypatch.setenv(name, "theirs")
    with pytest.raises(EngineFailed), vllm_server("m", [], free_port(), tmp_path / "log"):
        pass
    assert f"{name}=<>" in (tmp_path / "log").read_text()


def test_a_server_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the block ends, neither the server nor what it started lives on."""
    put_in_place(
        tmp_path,
        monkeypatch,
        f"#!{sys.executable}\n"
        "import http.server, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[-1])), Handler).serve_forever()\n",
    )
    served: list[VllmServer] = []

    def interrupted() -> None:
        with vllm_server("m", [], free_port(), tmp_path / "log") as server:
            assert server.draft_counters() == DraftCounters()
            served.append(server)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [server.process.poll() is None for server in served] == [False]
    assert ended(int((tmp_path / "child").read_text()), within_s=60)
