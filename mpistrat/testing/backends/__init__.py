"""The conformance class for backends of collectives (``conformance``), and its parts."""
