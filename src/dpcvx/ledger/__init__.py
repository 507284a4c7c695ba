"""The ledger: durable accounts of what was spent on a data set, which no run of charges can overspend."""

from dpcvx.ledger.account_statement import AccountStatement
from dpcvx.ledger.accounts import Account, Ledger
from dpcvx.ledger.chain import Entry, Receipt
from dpcvx.ledger.verification import Verification

__all__ = ["Account", "AccountStatement", "Entry", "Ledger", "Receipt", "Verification"]
