"""Start-up of a job: how long it takes, and what each process then holds."""
