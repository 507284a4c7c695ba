"""An independent check of privacy statements, which shares nothing with `dpcvx.accounting`."""

from dpcvx.checker.statements import Verdict, verify_statement

__all__ = ["Verdict", "verify_statement"]
