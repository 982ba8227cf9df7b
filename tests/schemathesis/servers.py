"""Servers to be fuzzed: on SQLite as `mandate-server dev` sets one up, and on a private PostgreSQL cluster."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

BINARIES = Path("/usr/lib/postgresql")
# How long a server may take to be ready, in seconds.
DEADLINE = 60


@contextlib.contextmanager
def on_sqlite(binary):
    """A server on SQLite, with what its one line of JSON says."""
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "dev", "--json", "--fresh", "--port", "0", "--data", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def on_postgres(binary):
    """The same on PostgreSQL."""
    with cluster() as database, tempfile.TemporaryDirectory() as folder:
        api, public, ops = (free_port() for _ in range(3))
        settings = os.environ | {
            "MANDATE_DATABASE": database,
            "MANDATE_MASTER_KEY": secrets.token_hex(32),
            "MANDATE_API_ADDRESS": f"127.0.0.1:{api}",
            "MANDATE_PUBLIC_ADDRESS": f"127.0.0.1:{public}",
            "MANDATE_OPS_ADDRESS": f"127.0.0.1:{ops}",
            "MANDATE_EXPORTS_DIRECTORY": folder,
            "MANDATE_LOG_LEVEL": "error",
        }
        server = subprocess.Popen([binary, "serve"], env=settings)
        try:
            wait_for(f"http://127.0.0.1:{ops}/readyz", server)
            create = [binary, "organization", "create", "demo", "--json"]
            keys = json.loads(subprocess.run(create, env=settings, check=True, stdout=subprocess.PIPE).stdout)
            host = f"http://127.0.0.1:{public}"
            urls = {"base_url": f"http://127.0.0.1:{api}/v1", "verdicts_url": host, "docs_url": host}
            yield keys | urls | {"database": database}
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def cluster():
    """A private cluster of PostgreSQL, which is gone afterwards; the URL of a database in it."""
    binaries = max(BINARIES.glob("*/bin"), key=lambda path: int(path.parent.name))
    directory = Path(tempfile.mkdtemp())
    data, port = directory / "data", free_port()
    # PostgreSQL refuses to run as root.
    user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(directory, "postgres", "postgres")

    def run(program, *arguments):
        command = [*user, binaries / program, *arguments]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)

    try:
        run("initdb", "--username", "mandate", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--pgdata", data)
        options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        run("pg_ctl", "--pgdata", data, "--wait", "--log", directory / "log", "--options", options, "start")
        try:
            yield f"postgres://mandate@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "--pgdata", data, "--wait", "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(directory)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(url, server):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit(f"{url} is not ready")
