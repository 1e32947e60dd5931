"""The conformance classes for strategies, an area of the contract each (tests/CONTRACT.md)."""
