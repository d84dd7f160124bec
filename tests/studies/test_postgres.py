import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from builders import an_environment
from shared_study import REQUEST, VISITS, one_of_two_is_killed

from dsd_tune.errors import DsdTuneError
from dsd_tune.studies.address import Address
from dsd_tune.studies.joining import take_part

pytestmark = pytest.mark.postgres

PASSWORD = "a{b}%c"  # noqa: S105 (of a server that lives as long as this test)


def _programs() -> Path:
    """Where PostgreSQL's programs are; a machine without them skips, unless it says that it has all services."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found and find_spec("psycopg"):
        return found[-1].parent
    reason = "PostgreSQL or psycopg is not installed (apt install postgresql; pip install 'psycopg[binary]')"
    if os.environ.get("DSD_TUNE_REQUIRE_SERVICES"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of its own on a socket in a folder of its own; gives the URL of a database, by password."""
    programs = _programs()
    with TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)

        def run(program: str, *words: object) -> None:
            command = [*_as_user(folder), programs / program, "-D", folder / "data", *map(str, words)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

        run("initdb", "-U", "ann", "-A", "scram-sha-256", f"--pwfile={folder}/password", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-l", folder / "log", "-w", "-o", options, "start")
        yield f"postgresql+psycopg://ann:{quote(PASSWORD)}@/postgres?host={folder}"
        run("pg_ctl", "-m", "immediate", "stop")


def _as_user(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root; there, the user that its package made owns the folder and runs it."""
    if os.geteuid():
        return []
    for path in (folder, folder / "password"):
        shutil.chown(path, "postgres")
    return ["runuser", "-u", "postgres", "--"]


def test_a_killed_worker_costs_no_turn_and_doubles_none(server: str, tmp_path: Path) -> None:
    """Two workers on PostgreSQL, one killed: all turns are in the result once, the dead one's blocks among them."""
    one_of_two_is_killed(server, tmp_path, seed=1, name="killed")


def test_a_wrong_password_is_told_without_it(server: str) -> None:
    """A server that does not let a worker in says so, and neither password is shown."""
    with pytest.raises(DsdTuneError, match=r"password authentication failed.*lets you in") as refusal:
        Address(server.replace("ann:", "ann:hunter2")).open()
    assert "hunter2" not in str(refusal.value)


def test_a_lost_connection_is_made_again(server: str, tmp_path: Path) -> None:
    """A worker whose connections the server closed goes on with new ones."""
    import sqlalchemy

    with take_part(tmp_path / "run", REQUEST, an_environment, storage=server, join=False) as ledger:
        assert ledger.claim(VISITS[0])
        other = sqlalchemy.create_engine(server)
        with other.connect() as connection:
            connection.execute(
                sqlalchemy.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            )
        other.dispose()
        assert ledger.claim(VISITS[1])
