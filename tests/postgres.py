"""A PostgreSQL server of its own for the tests, from the operating system's package."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path


def programs():
    """Folder of initdb and pg_ctl, newest version first; None where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).parent if on_path else None


def prefix():
    """initdb refuses to run as root; the package's user runs it then."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def can_start():
    if programs() is None:
        return False
    if os.getuid() != 0:
        return True
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" in names and shutil.which("setpriv") is not None


@contextlib.contextmanager
def server():
    """Start a server that listens on a socket file alone; yield what makes a new database and its URL."""
    import psycopg

    # Short, because a socket's path has 107 bytes; in memory where there is such a folder.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data, tools = folder / "data", programs()

    def run(tool, *arguments):
        command = [*prefix(), str(tools / tool), "-D", str(data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
    try:
        run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
        run("pg_ctl", "--wait", "--log", str(folder / "log"), "-o", options, "start")
        made = []

        def database():
            made.append(f"test{len(made)}")
            with psycopg.connect(f"host={folder} user=postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {made[-1]}")
            return f"postgresql://postgres@/{made[-1]}?host={folder}"

        yield database
        run("pg_ctl", "--wait", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
