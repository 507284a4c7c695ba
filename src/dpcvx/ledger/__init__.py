"""The ledger: durable accounts of the privacy budget spent on a data set, each with a cap."""

from dpcvx.ledger.account_statement import AccountStatement
from dpcvx.ledger.accounts import Account, Ledger
from dpcvx.ledger.chain import AccountState, Entry, Receipt, SecretChange, WitnessStart
from dpcvx.ledger.fingerprints import Declared
from dpcvx.ledger.verification import Verification

__all__ = [
    "Account",
    "AccountState",
    "AccountStatement",
    "Declared",
    "Entry",
    "Ledger",
    "Receipt",
    "SecretChange",
    "Verification",
    "WitnessStart",
]
