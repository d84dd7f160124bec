"""Where studies are kept: what the user named, opened, and what can be wrong with it in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dsd_tune.errors import DsdTuneError, EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from sqlalchemy import URL

_LOCKED_FOR_S = 60
"""How long to wait for another worker's transaction on a SQLite file; its own default gives up after five seconds."""


@dataclass(frozen=True, slots=True)
class Address:
    """A database URL as SQLAlchemy writes it, or the path of an Optuna journal file.

    Shown as a string it has no user, password or options: those stay out of messages and files.
    """

    text: str = field(repr=False)

    @classmethod
    def of_sqlite(cls, path: Path) -> Address:
        """A database file of its own."""
        from sqlalchemy import URL

        return cls(URL.create("sqlite", database=str(path.resolve())).render_as_string())

    def __str__(self) -> str:
        if not self._is_database:
            return self.text
        url = self._url()
        port = f":{url.port}" if url.port else ""
        return f"{url.drivername}://{url.host or ''}{port}/{url.database or ''}"

    def open(self) -> BaseStorage:
        """Connect, and prepare a database that is empty.

        Raises:
            UsageError: this is no address of a storage, or no Optuna storage is there.
            EnvironmentUnfit: the database's driver is not installed.
            DsdTuneError: the server is not there or refuses.
        """
        import optuna

        # It tells of every study it creates, and that its storages are experimental here and there.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self.explained():
            return self._open_database() if self._is_database else self._open_journal()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what Optuna, the database and the disk raise into errors that say what to do.

        Raises:
            DsdTuneError: see `open`.
        """
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except StorageInternalError as error:
            raise self._unusable(error.__cause__ or error) from error
        except (SQLAlchemyError, OSError) as error:
            raise self._unusable(error) from error

    def _open_database(self) -> BaseStorage:
        from optuna.storages import RDBStorage, get_storage
        from sqlalchemy.exc import ArgumentError

        # A worker that measures for an hour finds its connection closed by the server now and then.
        options: dict[str, object] = {"pool_pre_ping": True}
        if self._url().get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": _LOCKED_FOR_S}
        try:
            # Optuna fills in braces; one in a password is meant as it is.
            return get_storage(RDBStorage(self.text.replace("{", "{{").replace("}", "}}"), engine_kwargs=options))
        except ImportError as error:
            driver = error.__cause__.name if isinstance(error.__cause__, ImportError) else self._url().drivername
            raise EnvironmentUnfit(
                f"{self} needs the Python package {driver}, which is not installed.", "Install it beside dsd-tune."
            ) from error
        except ArgumentError as error:
            raise self._no_address() from error
        except RuntimeError as error:
            raise UsageError(
                f"{self} was set up by another version of Optuna.", "Use the same Optuna, or another database."
            ) from error

    def _open_journal(self) -> BaseStorage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        try:
            return JournalStorage(JournalFileBackend(self.text))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self} is no journal of Optuna, or is damaged.", f"Name another file. {_FORMS}"
            ) from error

    @property
    def _is_database(self) -> bool:
        return "://" in self.text

    def _url(self) -> URL:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(self.text)
        except (ArgumentError, ValueError) as error:
            raise self._no_address() from error
        if "@" in (url.host or ""):
            # The rest of a password, which must not be shown as a host.
            raise self._no_address()
        return url

    def _no_address(self) -> UsageError:
        scheme = self.text.partition("://")[0]
        return UsageError(
            f"{scheme}://... is no address of a database that is known here.",
            f"{_FORMS} In a password, write @ as %40.",
        )

    def _unusable(self, error: BaseException) -> DsdTuneError:
        served = self._is_database and self._url().get_backend_name() != "sqlite"
        todo = "See that the server runs and lets you in" if served else "Name a file that you may write to"
        return DsdTuneError(
            f"The study in {self} cannot be reached: {self._reason(error)}.",
            f"{todo}, then run the same command again; what was measured is kept.",
        )

    def _reason(self, error: BaseException) -> str:
        """The system's or the driver's own words, without the password, should it be told there."""
        told = error.strerror if isinstance(error, OSError) else getattr(error, "orig", None)
        line = str(told or error).strip().split("\n")[0].rstrip(".")
        secrets = [self._url().password, *map(str, self._url().query.values())] if self._is_database else []
        for secret in filter(None, secrets):
            line = line.replace(secret, "***")
        return line


_FORMS = "Write sqlite:///FILE, postgresql+psycopg://USER@HOST/DATABASE, or the path of a journal file."
