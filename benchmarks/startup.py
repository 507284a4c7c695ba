"""Time to import the package and to print the command's help, over the time to import NumPy."""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMAND = Path(sys.executable).with_name("dpcvx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    sides = {
        "import numpy": [sys.executable, "-c", "import numpy"],
        "import dpcvx": [sys.executable, "-c", "import dpcvx"],
        "dpcvx --help": [str(COMMAND), "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):  # the first round warms the file cache
        for name, command in sides.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    for name, limit in (("import numpy", None), ("import dpcvx", 2.5), ("dpcvx --help", 2.0)):
        ratio = medians[name] / medians["import numpy"]
        bar = "" if limit is None else f"  {ratio:.2f}x of import numpy (bar: {limit}x)"
        print(f"{name:<14} {1e3 * medians[name]:7.1f} ms{bar}")


if __name__ == "__main__":
    main()
