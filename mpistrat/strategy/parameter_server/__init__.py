"""`ParameterServerStrategy`, its machinery, and functions on workers."""
