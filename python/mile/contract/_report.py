"""What was found, law by law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What one law expects, and what was measured. `holds` is None where nothing was expected."""

    law: str
    expected: str
    measured: float
    holds: bool | None


class Broken(AssertionError):
    """Laws do not hold; `findings` has them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        lines = (f"{one.law}: expected {one.expected}, got {one.measured:.3g}" for one in findings)
        super().__init__("; ".join(lines))


class Report:
    """The findings of a check: `print` shows them as a table, and `report["resumed"]` is one of them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)

    @property
    def holds(self) -> bool:
        """Whether all laws hold."""
        return not self.broken

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that do not hold."""
        return tuple(one for one in self.findings if one.holds is False)

    def assert_all(self) -> None:
        """Raises `Broken`, an `AssertionError`, if a law does not hold.

        >>> from mile import contract
        >>> def averaging(s):
        ...     s.x = s.mix(s.x)
        >>> report = contract.check(averaging, rounds=400)
        >>> try:
        ...     report.assert_all()
        ... except contract.Broken as broken:
        ...     print(*(one.law for one in broken.findings), sep=", ")
        minimum of quadratics, stationary point
        """
        if self.broken:
            raise Broken(self.broken)

    def __getitem__(self, law: str) -> Finding:
        for one in self.findings:
            if one.law == law:
                return one
        raise KeyError(f"law: expected one of {', '.join(one.law for one in self.findings)}, got {law}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        words = {True: "yes", False: "NO", None: ""}
        rows = [("law", "expected", "measured", "holds")]
        rows += [(one.law, one.expected, f"{one.measured:.3g}", words[one.holds]) for one in self.findings]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [f"{law:<{widths[0]}}  {expected:>{widths[1]}}  {measured:>{widths[2]}}  {holds}".rstrip() for law, expected, measured, holds in rows]
        return "\n".join([lines[0], "-" * (sum(widths) + 6), *lines[1:]])

    __repr__ = __str__
