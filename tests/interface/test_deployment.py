"""The files of deploy/: the container's start, its settings, the unit, and TLS behind nginx."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

import postgres
from dpcvx.service.keys import open_keys
from serving import make_analysts, serving

DEPLOY = Path(__file__).parents[2] / "deploy"
NGINX = os.environ.get("DPCVX_NGINX") or shutil.which("nginx")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_for(address, process, **options):
    for _ in range(1200):
        assert process.poll() is None, process.stderr.read()
        try:
            return httpx.get(address, **options)
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"Nobody answers at {address}.")


@pytest.fixture
def settings(tmp_path):
    rng = np.random.default_rng(0)
    rows = "\n".join(",".join(map(str, row)) for row in rng.integers(0, 2, (500, 2)))
    (tmp_path / "people.csv").write_text(f"a,b\n{rows}\n")
    levels = 'levels = ["0", "1"]\nother = "missing"\n'
    (tmp_path / "schema.toml").write_text(f"[attributes.a]\n{levels}[attributes.b]\n{levels}")
    command = tmp_path / "dpcvx"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from dpcvx.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "DPCVX_DATA": str(tmp_path / "people.csv"),
        "DPCVX_SCHEMA": str(tmp_path / "schema.toml"),
        "DPCVX_EPSILON": "1.0",
        "DPCVX_COMMAND": str(command),
        "DPCVX_HOST": "127.0.0.1",
        "DPCVX_PORT": str(free_port()),
        "DPCVX_SLOT": "0.01",
        "DPCVX_WITNESS": str(tmp_path / "witness"),
    }


@pytest.mark.long
@pytest.mark.skipif(not postgres.can_start(), reason="needs PostgreSQL")
def test_the_container_starts_from_its_variables_and_stops_well(settings):
    address = f"http://127.0.0.1:{settings['DPCVX_PORT']}"
    with postgres.server() as database:
        url = database()
        settings |= {"DPCVX_LEDGER": url, "DPCVX_ACCOUNT": "people"}
        start = [str(DEPLOY / "entrypoint.sh")]
        with subprocess.Popen(start, env=settings, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert wait_for(f"{address}/readyz", process).json()["status"] == "ready"
                _, text = open_keys(url, "people").create("ann")
                headers = {"Authorization": f"Bearer {text}"}
                query = {"kind": "count", "where": {"a": ["1"]}}
                asked = httpx.post(f"{address}/api/v1/queries", json=query, headers=headers, timeout=60)
                assert asked.status_code == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
            assert '"route": "/api/v1/queries", "status": 200' in process.stderr.read()


def test_a_missing_variable_is_named(settings):
    done = subprocess.run([str(DEPLOY / "entrypoint.sh")], env=settings, capture_output=True, text=True)
    assert done.returncode == 2
    assert "set DPCVX_LEDGER" in done.stderr


def test_the_files_agree_with_each_other():
    script = (DEPLOY / "entrypoint.sh").read_text()
    compose = (DEPLOY / "compose.yaml").read_text()
    known = set(re.findall(r"DPCVX_[A-Z_]+", script))
    assert set(re.findall(r"(DPCVX_[A-Z_]+):", compose)) <= known
    for source in re.findall(r"^COPY ([^-].*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE):
        assert all((DEPLOY.parent / name).exists() for name in source.split())
    assert "dpcvx-entrypoint" in (DEPLOY / "dpcvx.service").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_systemd_unit_is_valid(tmp_path):
    text = (DEPLOY / "dpcvx.service").read_text()
    unit = tmp_path / "dpcvx.service"
    unit.write_text(text.replace("/usr/local/bin/dpcvx-entrypoint", str(DEPLOY / "entrypoint.sh")))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "dpcvx.service" not in done.stderr


@contextmanager
def proxy(folder, upstream):
    """A real nginx with the configuration of deploy/ and a certificate of its own; yields its address."""
    made = folder / "certificates"
    made.mkdir()
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(made / "server.key"), "-out", str(made / "server.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *subject]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text()
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("service:8000", upstream)
    text = text.replace("certificates/", f"{made}/").replace("/dev/stdout", str(folder / "access.log"))
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{name}_temp_path {folder}/{name};" for name in paths)
    text = text.replace("http {", f"http {{ {places}", 1)
    (folder / "nginx.conf").write_text(f"pid {folder}/pid;\ndaemon off;\n{text}")
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = f"https://localhost:{port}"
            trust = ssl.create_default_context(cafile=str(made / "server.crt"))
            wait_for(f"{address}/healthz", process, verify=trust)
            yield address, trust
        finally:
            process.terminate()


@pytest.mark.long
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_tls_behind_nginx(tmp_path):
    from dpcvx.service.application import application

    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy").chmod(0o755)
    analysts = make_analysts(tmp_path)
    _, text = analysts.keys.create("ann")
    with (
        serving(application(analysts, slot=0.01)) as address,
        proxy(tmp_path / "proxy", address.removeprefix("http://")) as (secure, trust),
        httpx.Client(base_url=secure, verify=trust, timeout=30) as ann,
    ):
        ann.headers["Authorization"] = f"Bearer {text}"
        asked = ann.post("/api/v1/queries", json={"kind": "count", "where": {"sex": ["f"]}})
        assert asked.status_code == 200
        assert "max-age" in asked.headers["Strict-Transport-Security"]
        assert re.fullmatch("[0-9a-f]{32}", asked.headers["X-Request-Id"])
        assert [ann.get(path).status_code for path in ("/metrics", "/readyz", "/healthz")] == [404, 404, 200]
        assert ann.post("/api/v1/queries", content=b"x" * 70_000).status_code == 413
        plain = httpx.get(secure.replace("https", "http"))
        assert plain.status_code == 400
        logged = (tmp_path / "proxy" / "access.log").read_text()
        assert asked.headers["X-Request-Id"] in logged
        assert text not in logged
