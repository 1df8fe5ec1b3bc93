"""PostgreSQL, MariaDB and PgBouncer of the system, with their files in a temporary folder, for MLflow's tables."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from .process import ServerProcess, free_port, listens, new_folder

__all__ = ["Mariadb", "PgBouncer", "Postgresql", "missing_programs"]

USER, PASSWORD = "mlflow", "mlflow-password"
Uncaptured = Callable[[], AbstractContextManager[None]]


def missing_programs(*names: str) -> list[str]:
    """Return the Debian packages of the programs that aren't installed here."""
    packages = {"postgres": "postgresql", "mariadbd": "mariadb-server", "pgbouncer": "pgbouncer"}
    return [packages[name] for name in names if _find(name) is None]


def _find(name: str) -> str | None:
    """Return the path of a program; Debian keeps those of servers out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(found[0]) if found else shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _program(name: str) -> str:
    found = _find(name)
    assert found is not None, f"{name} isn't installed"
    return found


def make_tables(uri: str) -> None:
    """Have MLflow's tables made in an empty database, by a process that keeps no connection to it."""
    program = (
        "import sys; from otel_rollout_mlflow import MlflowSpanExporter;"
        "store = MlflowSpanExporter(tracking_uri=sys.argv[1])._opened();"
        "store.ensure_experiment('Default'); store.close()"
    )
    subprocess.run([sys.executable, "-c", program, uri], check=True, capture_output=True)


def _as_nobody(folder: Path) -> list[str]:
    """Return what starts a program as another user: as root PostgreSQL and PgBouncer refuse to run."""
    if os.geteuid() != 0:
        return []
    shutil.chown(folder, "nobody", "nogroup")
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def _folder(name: str) -> Path:
    # Not below pytest's folder, which no other user may enter.
    folder = new_folder(f"{name}-")
    folder.chmod(0o755)
    return folder


class _Database:
    """What the servers have in common: started and stopped, again on the same files."""

    def __init__(self, name: str, command: list[str], folder: Path, port: int, uncaptured: Uncaptured) -> None:
        self.port = port
        self.folder = folder
        self.process = ServerProcess(name, command, self.is_up, folder=folder, uncaptured=uncaptured)

    def is_up(self) -> bool:
        """Return True if it answers."""
        return listens(self.port)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        running = self.process._process
        if running is not None:
            running.send_signal(signal.SIGQUIT)
            running.wait(30)

    def stop(self) -> None:
        """End it; its files stay."""
        running = self.process._process
        if running is not None and running.poll() is None:
            # PostgreSQL's fast shutdown: by SIGTERM it would wait for its clients.
            running.send_signal(signal.SIGINT if isinstance(self, Postgresql) else signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                running.wait(20)
        self.process.stop()

    def start(self) -> None:
        """Start it."""
        self.process.start()

    def __exit__(self, *unused: object) -> None:
        # Its files go anyway.
        running = self.process._process
        if running is not None and running.poll() is None:
            running.send_signal(signal.SIGQUIT if isinstance(self, Postgresql) else signal.SIGKILL)
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgresql(_Database):
    """One PostgreSQL server; its one user is the superuser.

    Args:
        uncaptured: See `ServerProcess`.
        with_tables: Whether its database `tables` has MLflow's tables.
    """

    def __init__(self, *, uncaptured: Uncaptured = nullcontext, with_tables: bool = False) -> None:
        folder = _folder("postgresql")
        prefix = _as_nobody(folder)
        password = folder / "password"
        password.write_text(PASSWORD)
        subprocess.run(
            [
                *prefix,
                _program("initdb"),
                "-D",
                folder / "data",
                "-U",
                USER,
                "--pwfile",
                password,
                "--no-sync",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ],
            check=True,
            capture_output=True,
        )
        port = free_port()
        self._with_tables = with_tables
        options = [f"-p{port}", "-k", str(folder), "-clisten_addresses=127.0.0.1", "-cfsync=off"]
        super().__init__(
            "PostgreSQL",
            [*prefix, _program("postgres"), "-D", str(folder / "data"), *options],
            folder,
            port,
            uncaptured,
        )

    def is_up(self) -> bool:
        """Return True if it accepts connections."""
        command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Execute statements and return what they print."""
        command = [_program("psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-At", "-c", sql, database]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    def new_database(self, template: str = "template1") -> str:
        """Create a database and return its name."""
        name = f"mlflow_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def uri(self, database: str, *, user: str = USER, password: str = PASSWORD, port: int | None = None) -> str:
        """Return the tracking URI of a database."""
        return f"postgresql://{user}:{password}@127.0.0.1:{port or self.port}/{database}"

    def __enter__(self) -> Postgresql:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        if self._with_tables:
            self.execute("CREATE DATABASE tables")
            make_tables(self.uri("tables"))
        return self


class Mariadb(_Database):
    """One MariaDB server.

    Args:
        uncaptured: See `ServerProcess`.
        with_tables: Whether its database `tables` has MLflow's tables.
    """

    def __init__(self, *, uncaptured: Uncaptured = nullcontext, with_tables: bool = False) -> None:
        folder = _folder("mariadb")
        prefix = _as_nobody(folder)
        data = folder / "data"
        subprocess.run(
            [
                *prefix,
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                "--skip-name-resolve",
            ],
            check=True,
            capture_output=True,
        )
        port = free_port()
        self._with_tables = with_tables
        self.socket = folder / "socket"
        command = [_program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={self.socket}", f"--pid-file={folder / 'pid'}"]
        # What a test waits for, above all when the tables are made, is the disk.
        command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite"]
        command += ["--character-set-server=utf8mb4"]
        super().__init__("MariaDB", [*prefix, *command], folder, port, uncaptured)

    def execute(self, sql: str, database: str = "") -> str:
        """Execute statements and return what they print."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", "-N", "-e", sql, database]
        return subprocess.run([word for word in command if word], check=True, capture_output=True, text=True).stdout

    def new_database(self, copied: str | None = None) -> str:
        """Create a database and return its name; with the tables and rows of another one."""
        name = f"mlflow_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        if copied is not None:
            options = ["--no-defaults", f"--socket={self.socket}", "-uroot"]
            dump = subprocess.run(["mariadb-dump", *options, copied], check=True, capture_output=True).stdout
            subprocess.run(["mariadb", *options, name], input=dump, check=True)
        return name

    def uri(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        """Return the tracking URI of a database."""
        return f"mysql+pymysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Mariadb:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        self.execute(
            f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO '{USER}'@'127.0.0.1'"
        )
        if self._with_tables:
            self.execute("CREATE DATABASE tables")
            make_tables(self.uri("tables"))
        return self


class PgBouncer(_Database):
    """A PgBouncer in transaction mode before a PostgreSQL, which forgets what a session was told."""

    def __init__(self, server: Postgresql, *, uncaptured: Uncaptured = nullcontext) -> None:
        folder = _folder("pgbouncer")
        port = free_port()
        (folder / "users.txt").write_text(f'"{USER}" "{PASSWORD}"\n')
        (folder / "pgbouncer.ini").write_text(
            f"""[databases]
* = host=127.0.0.1 port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {folder / "users.txt"}
pool_mode = transaction
default_pool_size = 3
server_reset_query =
ignore_startup_parameters = extra_float_digits
"""
        )
        prefix = _as_nobody(folder)
        super().__init__(
            "PgBouncer", [*prefix, _program("pgbouncer"), str(folder / "pgbouncer.ini")], folder, port, uncaptured
        )

    def __enter__(self) -> PgBouncer:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        return self
