"""Build the image of deploy/Dockerfile with buildah, start the service in it, ask a query, and stop it.

python ci/image_check.py [options of buildah build]     # needs buildah, and python:3.12-slim or a registry
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
USER = 10001  # of the Dockerfile
SCHEMA = """
[attributes.sex]
levels = ["f", "m"]
other = "missing"
[attributes.ill]
levels = ["0", "1"]
other = "missing"
"""


def buildah(*arguments: str) -> str:
    """Run buildah in the root of the repository; return what it prints."""
    done = subprocess.run(["buildah", *arguments], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return done.stdout.strip()


def ask(address: str, query: dict[str, object] | None = None, key: str = "") -> dict[str, object]:
    """Return the JSON that an address answers, to a query with a key or to a plain request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"} if key else {}
    body = None if query is None else json.dumps(query).encode()
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def served(process: subprocess.Popen[bytes], address: str) -> dict[str, object]:
    """Wait until the service is ready; return what it says."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("The container ended before it was ready.")
        with contextlib.suppress(OSError):
            return ask(f"{address}/readyz")
        time.sleep(0.5)
    raise SystemExit(f"Nobody answers at {address}.")


def process_of(command: str) -> int:
    """Number of the service's process, which has the user of the image."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if folder.stat().st_uid == USER and words[1:3] == [command, "serve"]:
                return int(folder.name)
    raise SystemExit(f"No process of user {USER} serves.")


def main() -> None:
    """Build, start, ask, check the health, stop."""
    options = sys.argv[1:]
    buildah("build", "--format", "docker", *options, "-f", "deploy/Dockerfile", "-t", "dpcvx", ".")
    config = json.loads(buildah("inspect", "--type", "image", "dpcvx"))["Docker"]["config"]
    folder = Path(tempfile.mkdtemp())
    (folder / "people.csv").write_text("sex,ill\n" + "f,0\nm,1\nf,1\nm,0\n" * 2_000)
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "ledger").mkdir()
    os.chown(folder / "ledger", USER, USER)
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {
        "DATA": "/data/people.csv",
        "SCHEMA": "/data/schema.toml",
        "EPSILON": "1.0",
        "LEDGER": "/var/lib/dpcvx/people.db",
        "ACCOUNT": "people",
        "HOST": "127.0.0.1",
        "PORT": str(port),
    }
    container = buildah("from", "--pull-never", "localhost/dpcvx")
    given = [f"--env=DPCVX_{name}={value}" for name, value in settings.items()]
    volumes = [f"--volume={folder}:/data:ro", f"--volume={folder}/ledger:/var/lib/dpcvx"]
    run = ["run", f"--user={config['User']}", *given, *volumes, container, "--"]
    address = f"http://127.0.0.1:{port}"
    try:
        with subprocess.Popen(["buildah", *run, *config["Entrypoint"]]) as process:
            assert served(process, address)["status"] == "ready"
            key = buildah(
                *run, "dpcvx", "keys", "create", "ann", "--account=people", "--ledger=" + settings["LEDGER"]
            )
            answer = ask(
                f"{address}/api/v1/queries", {"kind": "count", "where": {"sex": ["f"]}}, key.split()[0]
            )
            assert abs(answer["coefficients"][0]["estimate"] - 4_000) < 400, answer  # type: ignore[index]
            command = [word.replace(":8000/", f":{port}/") for word in config["Healthcheck"]["Test"]]
            buildah(*run, *command[1:])
            os.kill(process_of("/usr/local/bin/dpcvx"), signal.Signals[config["StopSignal"]])
            assert process.wait(90) == 0
    finally:
        buildah("rm", container)
        shutil.rmtree(folder)
    print("The image is built; its service starts, is healthy, answers and stops.")


if __name__ == "__main__":
    main()
