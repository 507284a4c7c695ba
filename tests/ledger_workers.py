"""Processes that fight for one account; a script, so that they are forked from a process without threads.

ledger_workers.py race  URL ACCOUNT PROCESSES TRIES     prints how many charges were granted
ledger_workers.py kill  URL ACCOUNT ROUNDS SEED         prints what was released, after killing every worker
"""

import json
import os
import random
import signal
import sys
import tempfile
import time

from dpcvx.errors import BudgetExceeded
from dpcvx.events import ApproxDP
from dpcvx.ledger import Ledger

COST = ApproxDP(0.001, 0.0)  # added up exactly, so that a cap is a count
WORKERS = 3


def race(url, name, processes, tries):
    """Every process tries to charge; count what was granted."""
    Ledger(url).account(name)  # loads the driver before the children are made
    pipes = []
    for _ in range(processes):
        receive, send = os.pipe()
        if os.fork() == 0:
            account, granted = Ledger(url).account(name), 0
            for _ in range(tries):
                try:
                    account.charge(COST, purpose="race")
                    granted += 1
                except BudgetExceeded:
                    pass
            os.write(send, granted.to_bytes(4, "big"))
            os._exit(0)
        os.close(send)
        pipes.append(receive)
    granted = [int.from_bytes(os.read(pipe, 4), "big") for pipe in pipes]
    for _ in pipes:
        assert os.wait()[1] == 0
    print(json.dumps({"granted": sum(granted)}))


def release_until_killed(url, name, path):
    """Charge, then release: the order that must survive a kill at any moment."""
    account = Ledger(url).account(name)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        receipt = account.charge(COST, purpose="release")
        os.write(file, f"{receipt.hash}\n".encode())


def kill(url, name, rounds, seed):
    """Let some workers release things and kill them at a random moment, again and again."""
    draw = random.Random(seed)
    Ledger(url).account(name)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "released")
        for _ in range(rounds):
            children = []
            for _ in range(WORKERS):
                if (child := os.fork()) == 0:
                    release_until_killed(url, name, path)
                children.append(child)
            for child in children:
                time.sleep(draw.uniform(0.0, 0.15))
                os.kill(child, signal.SIGKILL)
            for child in children:
                os.waitpid(child, 0)
        released = []
        if os.path.exists(path):
            with open(path) as file:
                released = file.read().split()
    print(json.dumps({"released": released, "killed": WORKERS * rounds}))


if __name__ == "__main__":
    command, url, name, *numbers = sys.argv[1:]
    {"race": race, "kill": kill}[command](url, name, *map(int, numbers))
