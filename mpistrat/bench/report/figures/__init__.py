"""The figures of a report, a module for each kind; only these modules import matplotlib."""
